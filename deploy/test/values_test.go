package deploytest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// env is the environment of the first container.
func env(pod *corev1.PodSpec) map[string]string {
	out := map[string]string{}
	for _, e := range pod.Containers[0].Env {
		out[e.Name] = e.Value
	}
	return out
}

// Each value of the chart is decoded strictly, and is found where it belongs.
func TestEachValue(t *testing.T) {
	for set, found := range map[string]func(o *objects) any{
		`fullnameOverride="limits"=limits-members`: func(o *objects) any { return o.sets[0].Spec.ServiceName },
		`nameOverride="quota"=weir-quota`:          func(o *objects) any { return o.sets[0].Name },
		`commonLabels={"team":"a"}=a`: func(o *objects) any {
			return o.policies[0].Labels["team"] + o.sets[0].Spec.Selector.MatchLabels["team"]
		},
		`commonAnnotations={"team":"a"}=aa`: func(o *objects) any {
			return o.policies[0].Annotations["team"] + o.sets[0].Spec.Template.Annotations["team"]
		},
		`global={"imageRegistry":"r.example"}=r.example/registry.example.com/weir:0.1.0`: func(o *objects) any {
			return o.sets[0].Spec.Template.Spec.Containers[0].Image
		},
		`image.registry="r.example"=r.example/registry.example.com/weir:0.1.0`: func(o *objects) any {
			return o.sets[0].Spec.Template.Spec.Containers[0].Image
		},
		`updateStrategy={"type":"RollingUpdate","rollingUpdate":{"partition":2}}=2`: func(o *objects) any {
			return *o.sets[0].Spec.UpdateStrategy.RollingUpdate.Partition
		},
		`antiAffinity="none",affinity={"podAffinity":{}}=true`: func(o *objects) any {
			a := o.sets[0].Spec.Template.Spec.Affinity
			return a.PodAffinity != nil && a.PodAntiAffinity == nil
		},
		`persistence={"enabled":true,"storageClass":"fast","size":"3Gi",` +
			`"interval":"2s"}=fast 3Gi true true`: func(o *objects) any {
			c, pod := o.sets[0].Spec.VolumeClaimTemplates[0], o.sets[0].Spec.Template.Spec
			args := pod.Containers[0].Args
			return fmt.Sprint(*c.Spec.StorageClassName, " ", c.Spec.Resources.Requests.Storage(), " ",
				slices.Contains(args, "--data-dir=/var/lib/weir/data"), " ", slices.Contains(args, "--persist-interval=2s"))
		},
		`persistence={"enabled":true,"emptyDir":true}=0 1Gi`: func(o *objects) any {
			for _, v := range o.sets[0].Spec.Template.Spec.Volumes {
				if v.Name == "data" {
					return fmt.Sprint(len(o.sets[0].Spec.VolumeClaimTemplates), " ", v.EmptyDir.SizeLimit)
				}
			}
			return "no volume"
		},
		`minReadySeconds=7=7`:      func(o *objects) any { return o.sets[0].Spec.MinReadySeconds },
		`revisionHistoryLimit=3=3`: func(o *objects) any { return *o.sets[0].Spec.RevisionHistoryLimit },
		`podSecurityContext={"runAsUser":7}=7 65532`: func(o *objects) any {
			s := o.sets[0].Spec.Template.Spec.SecurityContext
			return fmt.Sprint(*s.RunAsUser, *s.FSGroup)
		},
		`podSecurityContext={"runAsUser":null,"fsGroup":null}=true true`: func(o *objects) any {
			s := o.sets[0].Spec.Template.Spec.SecurityContext
			return fmt.Sprint(s.RunAsUser == nil, s.FSGroup == nil)
		},
		`containerSecurityContext={"seccompProfile":{"type":"Localhost"}}=Localhost`: func(o *objects) any {
			return o.sets[0].Spec.Template.Spec.Containers[0].SecurityContext.SeccompProfile.Type
		},
		`schedulerName="mine"=mine`: func(o *objects) any {
			return o.sets[0].Spec.Template.Spec.SchedulerName
		},
		`runtimeClassName="gvisor"=gvisor`: func(o *objects) any {
			return *o.sets[0].Spec.Template.Spec.RuntimeClassName
		},
		`dnsConfig={"nameservers":["10.0.0.1"]}=10.0.0.1`: func(o *objects) any {
			return o.sets[0].Spec.Template.Spec.DNSConfig.Nameservers[0]
		},
		`initContainers=[{"name":"a","image":"b"}]=a`: func(o *objects) any {
			return o.sets[0].Spec.Template.Spec.InitContainers[0].Name
		},
		`sidecars=[{"name":"a","image":"b"}]=a`: func(o *objects) any {
			return o.sets[0].Spec.Template.Spec.Containers[1].Name
		},
		`extraEnvFrom=[{"secretRef":{"name":"a"}}]=a`: func(o *objects) any {
			return o.sets[0].Spec.Template.Spec.Containers[0].EnvFrom[0].SecretRef.Name
		},
		`extraObjects=["apiVersion: v1\nkind: ConfigMap\nmetadata: ` +
			`{name: \"{{ .Release.Name }}-more\"}"]=weir-more`: func(o *objects) any {
			return o.configs[len(o.configs)-1].Name
		},
		`podDisruptionBudget.maxUnavailable=1=AlwaysAllow`: func(o *objects) any {
			return *o.disruptions[0].Spec.UnhealthyPodEvictionPolicy
		},
		`podDisruptionBudget.unhealthyPodEvictionPolicy=""=true`: func(o *objects) any {
			return o.disruptions[0].Spec.UnhealthyPodEvictionPolicy == nil
		},
		`service={"type":"LoadBalancer","loadBalancerSourceRanges":["10.0.0.0/8"]}=10.0.0.0/8`: func(o *objects) any {
			return o.services[1].Spec.LoadBalancerSourceRanges[0]
		},
		`service={"type":"LoadBalancer","loadBalancerClass":"a"}=a`: func(o *objects) any {
			return *o.services[1].Spec.LoadBalancerClass
		},
		`service={"type":"LoadBalancer","externalTrafficPolicy":"Local"}=Local`: func(o *objects) any {
			return o.services[1].Spec.ExternalTrafficPolicy
		},
		`service={"labels":{"a":"b"}}=b`: func(o *objects) any {
			return o.services[1].Labels["a"]
		},
		`networkPolicy={"extraIngress":[{"ports":[{"port":9}]}]}=9`: func(o *objects) any {
			return o.policies[0].Spec.Ingress[2].Ports[0].Port
		},
		// nine tenths of the limit; none without one; what is given
		`resources.limits.memory="2Gi"=1843MiB`: func(o *objects) any {
			return env(&o.sets[0].Spec.Template.Spec)["GOMEMLIMIT"]
		},
		`resources.limits.memory="1500M"=1287MiB`: func(o *objects) any {
			return env(&o.sets[0].Spec.Template.Spec)["GOMEMLIMIT"]
		},
		`resources.limits.memory=null=`: func(o *objects) any {
			return env(&o.sets[0].Spec.Template.Spec)["GOMEMLIMIT"]
		},
		`goLimit="1GiB"=1GiB`: func(o *objects) any {
			return env(&o.sets[0].Spec.Template.Spec)["GOMEMLIMIT"]
		},
		`maxBytes=300000000=true`: func(o *objects) any {
			return slices.Contains(o.sets[0].Spec.Template.Spec.Containers[0].Args, "--max-bytes=300000000")
		},
		// another number of members is in a ConfigMap, which restarts nobody
		`replicas=5=5`: func(o *objects) any { return o.configs[0].Data["expect"] },
		`tls={"existingSecret":"a"}=weir.limits.svc /etc/weir/tls/ca.crt`: func(o *objects) any {
			e := env(&o.sets[0].Spec.Template.Spec)
			return e["WEIR_TOOL_SERVER_NAME"] + " " + e["WEIR_TOOL_CA"]
		},
		`tls={"existingSecret":"a","caKey":"","serverName":"b"}=b `: func(o *objects) any {
			e := env(&o.sets[0].Spec.Template.Spec)
			return e["WEIR_TOOL_SERVER_NAME"] + " " + e["WEIR_TOOL_CA"]
		},
	} {
		i := strings.LastIndex(set, "=")
		all := decode(t, renderWith(t, "--values", "testdata/least.yaml", "--set-json", set[:i]))
		if got := fmt.Sprint(deref(found(&all))); got != set[i+1:] {
			t.Errorf("%s: %s", set, got)
		}
	}
	// A set does not change with the number of members but for that number, so it restarts nobody.
	three, five := decode(t, render(t, "")), decode(t,
		renderWith(t, "--values", "testdata/least.yaml", "--set", "replicas=5"))
	a, err := yaml.Marshal(three.sets[0].Spec.Template)
	b, other := yaml.Marshal(five.sets[0].Spec.Template)
	if err != nil || other != nil || !bytes.Equal(a, b) {
		t.Errorf("another number of members changes the pods, and restarts all: %v, %v", err, other)
	}
}

func deref(v any) any {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return v
}

// On OpenShift the platform chooses user and groups.
func TestOpenShift(t *testing.T) {
	all := decode(t, renderWith(t, "--values", "testdata/least.yaml", "--api-versions", "security.openshift.io/v1"))
	if s := all.sets[0].Spec.Template.Spec.SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil ||
		s.FSGroup != nil || s.RunAsNonRoot == nil || s.SeccompProfile == nil {
		t.Errorf("%+v", s)
	}
}

// Rules in the values are validated by a Job before members see them, and a ConfigMap is not.
func TestRulesAreValidatedBefore(t *testing.T) {
	all := decode(t, render(t, "secrets.yaml"))
	if len(all.jobs) != 1 || !strings.HasPrefix(all.jobs[0].Annotations["helm.sh/hook"], "pre-install,pre-upgrade") {
		t.Fatalf("%+v", all.jobs)
	}
	job := all.jobs[0].Spec.Template.Spec
	name := job.Volumes[0].ConfigMap.Name
	if i := slices.IndexFunc(all.configs, func(c corev1.ConfigMap) bool {
		return c.Name == name
	}); i < 0 || !strings.Contains(all.configs[i].Data["rules.yaml"], "towns") {
		t.Errorf("no rules in %s", name)
	} else if c := all.configs[i].Annotations; c["helm.sh/hook"] != all.jobs[0].Annotations["helm.sh/hook"] ||
		c["helm.sh/hook-weight"] != "-1" || all.jobs[0].Annotations["helm.sh/hook-weight"] != "" {
		t.Errorf("the Job begins before its rules are there: %v, %v", c, all.jobs[0].Annotations)
	}
	if s := job.Containers[0].SecurityContext; !*s.ReadOnlyRootFilesystem || job.SecurityContext.SeccompProfile == nil {
		t.Errorf("%+v", s)
	}
	for flag, want := range map[string]string{"--strict": "--strict", "--strict=false": "/etc/weir/rules/rules.yaml"} {
		strict := decode(t, renderWith(t, "--values", "testdata/secrets.yaml", "--set", "extraArgs[0]="+flag))
		if got := strict.jobs[0].Spec.Template.Spec.Containers[0].Command[2]; got != want {
			t.Errorf("members start with %s, and the Job validates with %s", flag, got)
		}
	}
	if n := len(decode(t, render(t, "")).jobs); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

// An issuer that signs no local names gets none.
func TestCertificateWithoutLocalhost(t *testing.T) {
	all := decode(t, renderWith(t, "--values", "testdata/least.yaml", "--set-json",
		`tls={"certManager":{"enabled":true,"issuerRef":{"name":"a"},"localhost":false}}`))
	if c := all.certificates; len(c) != 1 || slices.Contains(c[0].Spec.DNSNames, "localhost") ||
		c[0].Spec.IPAddresses != nil {
		t.Errorf("%+v", c)
	}
}

// Every combination of what can be switched decodes strictly, and its pods keep the rules.
func TestCombinations(t *testing.T) {
	switches := [][2]string{
		{`tls.mode="required"`, `tls={"certManager":{"enabled":true,"issuerRef":{"name":"a"}}}`},
		{`peerTLS.insecure=true`, `peerTLS={"insecure":false,"csi":{"enabled":true,"issuerName":"a"}}`},
		{`administration.expose=false`,
			`networkPolicy.administrationFrom=[{"podSelector":{}}],administration.expose=true,serviceMonitor.enabled=true`},
		{`autoscaling.enabled=false`, `autoscaling.enabled=true`},
		{`rules.validate=true`,
			`rules={"existingConfigMap":"","content":"version: 1\nrules:\n  - {name: a, key: [user], limits: [1/day]}\n"}`},
		{`dashboard.enabled=false`, `dashboard.enabled=true,prometheusRule.enabled=true`},
	}
	for n := range 1 << len(switches) {
		args := []string{"--values", "testdata/least.yaml"}
		for i, s := range switches {
			for _, set := range splitTop(s[n>>i&1]) {
				args = append(args, "--set-json", set)
			}
		}
		all := decode(t, renderWith(t, args...))
		for _, wrong := range faults(&all.sets[0].Spec.Template.Spec) {
			t.Errorf("%v: %s", args, wrong)
		}
	}
}

// splitTop splits a=1,b={"c":2,"d":3} at the comma before b.
func splitTop(s string) (out []string) {
	depth, from := 0, 0
	for i, c := range s {
		switch {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0:
			out, from = append(out, s[from:i]), i+1
		}
	}
	return append(out, s[from:])
}

// The chart's README has values that render, and each value of values.yaml is described in the
// schema, at least by what it is in.
func TestChartIsDescribed(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, chart, "README.md"), -1)
	if len(blocks) < 3 {
		t.Fatalf("the README has %d examples", len(blocks))
	}
	for _, b := range blocks {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(b[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		least := []string{"--values", "testdata/least.yaml"}
		if strings.Contains(b[1], "repository:") {
			least = nil
		}
		decode(t, renderWith(t, append(least, "--values", file)...))
	}
	var schema map[string]any
	var values map[string]any
	if err := yaml.Unmarshal([]byte(read(t, chart, "values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(read(t, chart, "values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	properties := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		p, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("the schema lacks %s", name)
			continue
		}
		inner, _ := p["properties"].(map[string]any)
		described := p["description"] != nil
		for _, q := range inner {
			described = described || q.(map[string]any)["description"] != nil
		}
		if !described {
			t.Errorf("nothing says what %s is for", name)
		}
		if of, ok := values[name].(map[string]any); ok && inner != nil {
			for k := range of {
				if inner[k] == nil {
					t.Errorf("the schema lacks %s.%s", name, k)
				}
			}
		}
	}
}
