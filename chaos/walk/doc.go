// Package walk holds only tests: random walks of checks, reservations, refunds, resets and
// reloads against a model of decisions that was written from docs/rules.md and
// docs/charges.md, and not from the code. The model keeps all that was ever charged to a
// key, and computes each answer by going through that history again. It knows no formula
// that the program may know: what is given back was never there, and a wait is found by
// trying instants.
//
// Every rule of the model names the sentence of the documents that it follows.
package walk
