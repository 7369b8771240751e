package transport_test

func runChild() {}
