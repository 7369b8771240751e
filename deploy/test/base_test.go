package deploytest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var update = flag.Bool("update", false, "write the manifests of the Kustomize base")

// base is the directory of the Kustomize base.
var base = filepath.Join("..", "kustomize", "base")

// The Kustomize base has what the chart renders with its defaults: go test -update writes it.
func TestBaseIsTheChart(t *testing.T) {
	out, said, err := helm(t, "template", "weir", chart, "--kube-version", kubernetes)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, said)
	}
	out = "# Made of the chart with its defaults by: cd deploy/test && go test -run TestBaseIsTheChart -update\n" + out
	if *update {
		if err := os.WriteFile(filepath.Join(base, "weir.yaml"), []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out != read(t, base, "weir.yaml") {
		t.Error("deploy/kustomize/base/weir.yaml is not what the chart renders: run this test with -update")
	}
}

// Kustomize builds the base, and what it builds keeps the rules.
func TestKustomize(t *testing.T) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), base)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, string(text))
	if len(all.sets) != 1 || len(all.services) != 2 || len(all.disruptions) != 1 || len(all.policies) != 1 {
		t.Fatalf("%d sets, %d services", len(all.sets), len(all.services))
	}
	for _, wrong := range faults(&all.sets[0].Spec.Template.Spec) {
		t.Error(wrong)
	}
}
