package deploytest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// chart is where the chart is, and kubernetes the version that it is rendered for.
var chart = filepath.Join("..", "helm", "weir")

const kubernetes = "1.31.0"

// helm runs helm and returns what it prints and what it says on standard error.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	// Longer than a render takes: the first run builds helm.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", "helm.sh"), args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	return out.String(), said.String(), err
}

// render returns the manifests of the chart with a file of values, or with its defaults and
// those values that have none.
func render(t *testing.T, values string) string {
	t.Helper()
	return renderWith(t, "--values", filepath.Join("testdata", cmp.Or(values, "least.yaml")))
}

// renderWith returns the manifests of the chart with arguments of helm.
func renderWith(t *testing.T, more ...string) string {
	t.Helper()
	out, said, err := helm(t, append([]string{"template", "weir", chart, "--kube-version", kubernetes, "--namespace",
		"limits"}, more...)...)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, said)
	}
	return out
}

// objects are the manifests of the chart by their kinds.
type objects struct {
	sets         []appsv1.StatefulSet
	services     []corev1.Service
	configs      []corev1.ConfigMap
	accounts     []corev1.ServiceAccount
	jobs         []batchv1.Job
	disruptions  []policyv1.PodDisruptionBudget
	policies     []networkingv1.NetworkPolicy
	autoscalers  []autoscalingv2.HorizontalPodAutoscaler
	certificates []certificate
	monitors     []serviceMonitor
	alerts       []prometheusRule
}

// decode decodes manifests strictly: a field that a type does not have, or has twice, is an error.
func decode(t *testing.T, manifests string) (all objects) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+manifests, "\n---") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		switch kind.APIVersion + " " + kind.Kind {
		case " ": // only comments
		case "apps/v1 StatefulSet":
			all.sets = add(t, all.sets, document)
		case "v1 Service":
			all.services = add(t, all.services, document)
		case "v1 ConfigMap":
			all.configs = add(t, all.configs, document)
		case "batch/v1 Job":
			all.jobs = add(t, all.jobs, document)
		case "v1 ServiceAccount":
			all.accounts = add(t, all.accounts, document)
		case "policy/v1 PodDisruptionBudget":
			all.disruptions = add(t, all.disruptions, document)
		case "networking.k8s.io/v1 NetworkPolicy":
			all.policies = add(t, all.policies, document)
		case "autoscaling/v2 HorizontalPodAutoscaler":
			all.autoscalers = add(t, all.autoscalers, document)
		case "cert-manager.io/v1 Certificate":
			all.certificates = add(t, all.certificates, document)
		case "monitoring.coreos.com/v1 ServiceMonitor":
			all.monitors = add(t, all.monitors, document)
		case "monitoring.coreos.com/v1 PrometheusRule":
			all.alerts = add(t, all.alerts, document)
		default:
			t.Errorf("the chart has a %s of %s, which no test knows", kind.Kind, kind.APIVersion)
		}
	}
	return all
}

func add[T any](t *testing.T, to []T, document string) []T {
	t.Helper()
	var one T
	if err := yaml.UnmarshalStrict([]byte(document), &one); err != nil {
		t.Errorf("%v in\n%s", err, document)
	}
	return append(to, one)
}

// The kinds of other makers: the fields of their resource definitions that the chart may use.
type (
	certificate struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			SecretName  string          `json:"secretName"`
			Duration    metav1.Duration `json:"duration"`
			RenewBefore metav1.Duration `json:"renewBefore"`
			IssuerRef   struct {
				Name  string `json:"name"`
				Kind  string `json:"kind"`
				Group string `json:"group"`
			} `json:"issuerRef"`
			PrivateKey struct {
				Algorithm      string `json:"algorithm"`
				Size           int    `json:"size"`
				RotationPolicy string `json:"rotationPolicy"`
			} `json:"privateKey"`
			Usages      []string `json:"usages"`
			DNSNames    []string `json:"dnsNames"`
			IPAddresses []string `json:"ipAddresses"`
		} `json:"spec"`
	}
	serviceMonitor struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Selector  metav1.LabelSelector `json:"selector"`
			Endpoints []struct {
				Port              string         `json:"port"`
				Path              string         `json:"path"`
				Scheme            string         `json:"scheme"`
				Interval          string         `json:"interval"`
				ScrapeTimeout     string         `json:"scrapeTimeout"`
				Relabelings       []any          `json:"relabelings"`
				MetricRelabelings []any          `json:"metricRelabelings"`
				TLSConfig         map[string]any `json:"tlsConfig"`
				Authorization     map[string]any `json:"authorization"`
			} `json:"endpoints"`
		} `json:"spec"`
	}
	prometheusRule struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Groups []struct {
				Name  string `json:"name"`
				Rules []struct {
					Alert       string            `json:"alert"`
					Expr        string            `json:"expr"`
					For         string            `json:"for"`
					Labels      map[string]string `json:"labels"`
					Annotations map[string]string `json:"annotations"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Names stay text, also those that YAML takes for a number, a comment or a truth.
func TestNamesStayText(t *testing.T) {
	all := decode(t, render(t, "odd.yaml"))
	if len(all.sets) != 1 {
		t.Fatalf("there are %d sets", len(all.sets))
	}
	pod := &all.sets[0].Spec.Template.Spec
	if args := pod.Containers[0].Args; !slices.Contains(args, "--cluster-name=a #b") {
		t.Errorf("the cluster has another name: %q", args)
	}
	names := map[string]string{"account": pod.ServiceAccountName, "image": pod.Containers[0].Image}
	for _, v := range pod.Volumes {
		switch {
		case v.Secret != nil:
			names[v.Name] = v.Secret.SecretName
		case v.ConfigMap != nil:
			names[v.Name] = v.ConfigMap.Name
		}
	}
	want := map[string]string{
		"account": "12", "image": "1:2", "rules": "789", "keys": "123", "tls": "456", "client-ca": "0x10", "peer": "1e3",
		"permissions": "true",
	}
	if !maps.Equal(names, want) {
		t.Errorf("the names are %v, want %v", names, want)
	}
}
