// Package deploytest tests the chart and the Kustomize base. It is a module of its own, so that
// the types of Kubernetes never become dependencies of Weir.
package deploytest
