// Package archtest holds tests about the source of Weir itself: which package
// may import what, what none may do, and whether every behaviour that Weir
// promises has a test that names it. It has no code outside its tests.
//
// The house is a table, rows in house_test.go: each package has a floor, what
// it knows, and what it must never touch, each ban with its reason. A package
// without a row fails the test, so a new one starts with its row, and a row without a
// package fails it too.
//
// The checks read source, not what one platform compiles, so a file for
// another operating system is held to the same rules. They look at names, not
// at types: a local variable that hides an imported package is taken for the
// package. Each entry of each table is proven to bite by planting a violation
// of it (plant_test.go).
package archtest
