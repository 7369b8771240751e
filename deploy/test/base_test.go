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
	out, said, err := helm(t, "template", "weir", chart, "--kube-version", kubernetes, "--no-hooks", "--values",
		filepath.Join("testdata", "base.yaml"))
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

// An overlay with a prefix renames the services, and members still find each other.
func TestKustomizePrefix(t *testing.T) {
	to, err := filepath.Abs(base)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(dir, to)
	if err != nil {
		t.Fatal(err)
	}
	overlay := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamePrefix: shop-\nresources: [" +
		relative + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, string(text))
	set := all.sets[0]
	for _, s := range all.services {
		if s.Name == set.Spec.ServiceName {
			if got := env(&set.Spec.Template.Spec)["MEMBERS"]; s.Name != "shop-weir-members" || got != s.Name {
				t.Errorf("members are at %s, and looked for at %s", s.Name, got)
			}
			return
		}
	}
	t.Errorf("no service %s", set.Spec.ServiceName)
}
