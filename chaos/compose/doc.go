// Package compose holds what people run Weir with beside Go to its word, in
// tests: the image of the Dockerfile, the nodes of docker-compose.yaml, and what
// deploy has for Prometheus and Grafana.
//
// The tests of the image need a Docker engine and run by `make compose-test`;
// the others need nothing.
package compose
