package deploytest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// variants are the files of values that are rendered; the first is the defaults.
var variants = []string{"", "full.yaml", "secrets.yaml"}

// Each variant decodes strictly into the types of Kubernetes, and keeps the rules for pods.
func TestChart(t *testing.T) {
	flags := nodeFlags(t)
	for _, values := range variants {
		t.Run("values "+values, func(t *testing.T) {
			all := decode(t, render(t, values))
			if len(all.sets) != 1 {
				t.Fatalf("%d stateful sets", len(all.sets))
			}
			set := all.sets[0]
			for _, wrong := range faults(&set.Spec.Template.Spec) {
				t.Error(wrong)
			}
			if set.Spec.PodManagementPolicy != "Parallel" {
				t.Errorf("members start one by one (%s), and each waits for more than half of them", set.Spec.PodManagementPolicy)
			}
			labels := set.Spec.Template.Labels
			selects := func(what string, selector map[string]string) {
				t.Helper()
				if len(selector) == 0 {
					t.Errorf("%s selects everything", what)
				}
				for k, v := range selector {
					if labels[k] != v {
						t.Errorf("%s selects %s=%s, the pods have %q", what, k, v, labels[k])
					}
				}
			}
			selects("the stateful set", set.Spec.Selector.MatchLabels)
			for _, d := range all.disruptions {
				selects("the disruption budget", d.Spec.Selector.MatchLabels)
				if *d.Spec.MaxUnavailable != intstr.FromInt32(1) {
					t.Errorf("%v may be unavailable", d.Spec.MaxUnavailable)
				}
			}
			pod := set.Spec.Template.Spec
			checkArgs(t, pod.Containers[0], flags)
			checkServices(t, set.Spec.ServiceName, all.services, pod, selects)
			checkMounts(t, pod, all.configs)
			for _, p := range all.policies {
				selects("the network policy", p.Spec.PodSelector.MatchLabels)
			}
		})
	}
}

// faults are the rules that a pod breaks.
func faults(pod *corev1.PodSpec) (wrong []string) {
	rule := func(ok bool, what string) {
		if !ok {
			wrong = append(wrong, what)
		}
	}
	is := func(b *bool, want bool) bool { return b != nil && *b == want }
	rule(is(pod.AutomountServiceAccountToken, false), "a token of the service account is mounted")
	rule(is(pod.EnableServiceLinks, false), "the environment has the addresses of all services")
	rule(!pod.HostNetwork && !pod.HostPID && !pod.HostIPC, "the pod is in a namespace of its host")
	s := pod.SecurityContext
	rule(s != nil && is(s.RunAsNonRoot, true), "the pod may run as root")
	rule(s != nil && s.RunAsUser != nil && *s.RunAsUser > 0, "the pod has no user")
	rule(s != nil && s.FSGroup != nil, "the pod has no fsGroup, so that it cannot read its keys at mode 0440")
	rule(s != nil && s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"the pod has no seccomp profile")
	var timeout, delay int64
	for _, c := range pod.Containers {
		s := c.SecurityContext
		rule(s != nil && is(s.ReadOnlyRootFilesystem, true), c.Name+": the file system can be written")
		rule(s != nil && is(s.AllowPrivilegeEscalation, false), c.Name+": privileges can be raised")
		rule(s != nil && !is(s.Privileged, true), c.Name+" is privileged")
		rule(s != nil && s.Capabilities != nil && slices.Contains(s.Capabilities.Drop, "ALL") && len(s.Capabilities.Add) == 0,
			c.Name+" has capabilities")
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := c.Resources.Limits[r], c.Resources.Requests[r]
			// A member that is throttled is taken for silent.
			rule(limit.IsZero() == (r == corev1.ResourceCPU), fmt.Sprintf("%s: the limit of %s is %v", c.Name, r, &limit))
			rule(!request.IsZero(), fmt.Sprintf("%s: no request of %s", c.Name, r))
		}
		rule(c.Resources.Limits.Memory().Cmp(*c.Resources.Requests.Memory()) == 0,
			c.Name+": memory is requested at less than its limit: the pod may be evicted")
		probes := map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe,
			"readiness": c.ReadinessProbe}
		for name, p := range probes {
			path := "/healthz"
			if name == "readiness" {
				path = "/readyz"
			}
			rule(p != nil && p.HTTPGet != nil && p.HTTPGet.Path == path && p.HTTPGet.Port.StrVal == "health" &&
				p.TimeoutSeconds > 0 && p.PeriodSeconds > 0,
				fmt.Sprintf("%s: no %s probe at %s of the health listener", c.Name, name, path))
		}
		rule(!strings.HasSuffix(c.Image, ":latest") && strings.ContainsAny(c.Image, ":@"),
			c.Name+": the image is whichever is latest")
		for _, a := range c.Args {
			_, _ = fmt.Sscanf(a, "--shutdown-timeout=%ds", &timeout)
			_, _ = fmt.Sscanf(a, "--shutdown-delay=%ds", &delay)
		}
	}
	rule(timeout-delay > 10, fmt.Sprintf("%d s are left to hand over, which takes up to 10 s", timeout-delay))
	rule(pod.TerminationGracePeriodSeconds != nil && *pod.TerminationGracePeriodSeconds > timeout,
		"the pod is killed before --shutdown-timeout has passed")
	for _, v := range pod.Volumes {
		rule(v.HostPath == nil, v.Name+" is a directory of the host")
		if v.Secret != nil {
			rule(v.Secret.DefaultMode != nil && *v.Secret.DefaultMode == 0o440, v.Name+": every user may read the secret")
		}
	}
	return wrong
}

// Each rule notices a pod that breaks it.
func TestRulesForPods(t *testing.T) {
	good := decode(t, render(t, "")).sets[0].Spec.Template.Spec
	if wrong := faults(&good); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	yes, mode, grace := true, int32(0o444), int64(20)
	for want, spoil := range map[string]func(*corev1.PodSpec){
		"token":      func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = nil },
		"addresses":  func(p *corev1.PodSpec) { p.EnableServiceLinks = nil },
		"namespace":  func(p *corev1.PodSpec) { p.HostNetwork = true },
		"as root":    func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil },
		"no user":    func(p *corev1.PodSpec) { p.SecurityContext.RunAsUser = new(int64) },
		"fsGroup":    func(p *corev1.PodSpec) { p.SecurityContext.FSGroup = nil },
		"seccomp":    func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil },
		"written":    func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.ReadOnlyRootFilesystem = nil },
		"raised":     func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = &yes },
		"privileged": func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Privileged = &yes },
		"capabilities": func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_RAW"}
		},
		"limit of memory": func(p *corev1.PodSpec) { delete(p.Containers[0].Resources.Limits, corev1.ResourceMemory) },
		"limit of cpu": func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Limits[corev1.ResourceCPU] = p.Containers[0].Resources.Requests[corev1.ResourceCPU]
		},
		"request of cpu": func(p *corev1.PodSpec) { delete(p.Containers[0].Resources.Requests, corev1.ResourceCPU) },
		"startup":        func(p *corev1.PodSpec) { p.Containers[0].StartupProbe = nil },
		"readiness":      func(p *corev1.PodSpec) { p.Containers[0].ReadinessProbe.HTTPGet.Path = "/healthz" },
		"liveness":       func(p *corev1.PodSpec) { p.Containers[0].LivenessProbe.HTTPGet.Port.StrVal = "http" },
		"latest":         func(p *corev1.PodSpec) { p.Containers[0].Image = "weir:latest" },
		"killed":         func(p *corev1.PodSpec) { p.TerminationGracePeriodSeconds = &grace },
		"hand over":      func(p *corev1.PodSpec) { p.Containers[0].Args = []string{"--shutdown-timeout=9s"} },
		"of the host":    func(p *corev1.PodSpec) { p.Volumes[0].HostPath = new(corev1.HostPathVolumeSource) },
		"every user":     func(p *corev1.PodSpec) { p.Volumes[1].Secret.DefaultMode = &mode },
	} {
		pod := good.DeepCopy()
		spoil(pod)
		if wrong := faults(pod); !slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("a pod that breaks the rule of %q passes: %v", want, wrong)
		}
	}
}

// nodeFlags are the flags of the node as docs/run.md lists them; a test of the node holds
// that table.
func nodeFlags(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(--[a-z-]+)` \\| `WEIR_").FindAllStringSubmatch(read(t, "..", "..",
		"docs", "run.md"), -1) {
		all[m[1]] = true
	}
	if len(all) < 40 {
		t.Fatalf("docs/run.md lists %d flags", len(all))
	}
	return all
}

// checkArgs reports flags that a node does not know or gets twice, and what they must be here.
func checkArgs(t *testing.T, c corev1.Container, flags map[string]bool) {
	t.Helper()
	values := map[string]string{}
	for _, a := range c.Args[1:] {
		name, value, _ := strings.Cut(a, "=")
		if _, twice := values[name]; twice || !flags[name] {
			t.Errorf("%s is no flag of a node, or given twice", name)
		}
		values[name] = value
	}
	if c.Args[0] != "serve" || values["--name"] != "$(POD_NAME)" || values["--advertise"] != "$(POD_IP)" {
		t.Errorf("args: %q", c.Args)
	}
	open := slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "admin" })
	if admin := values["--admin-addr"]; (admin == ":8082") != open || !open && admin != "127.0.0.1:8082" {
		t.Errorf("administration is at %s, and its port is open: %v", admin, open)
	}
	for _, p := range c.Ports {
		flag := map[string]string{"http": "--http-addr", "grpc": "--grpc-addr", "health": "--health-addr",
			"gossip": "--gossip-addr", "gossip-udp": "--gossip-addr", "peer": "--peer-addr", "admin": "--admin-addr",
			"envoy": "--envoy-addr"}[p.Name]
		if values[flag] != fmt.Sprintf(":%d", p.ContainerPort) {
			t.Errorf("port %s is %d, and %s %s", p.Name, p.ContainerPort, flag, values[flag])
		}
	}
}

// checkServices reports services that do not do what the chart says of them.
func checkServices(t *testing.T, governing string, services []corev1.Service, pod corev1.PodSpec,
	selects func(string, map[string]string)) {
	t.Helper()
	if len(services) != 2 {
		t.Fatalf("%d services", len(services))
	}
	for _, s := range services {
		selects("the service "+s.Name, s.Spec.Selector)
		var ports []string
		for _, p := range s.Spec.Ports {
			ports = append(ports, p.TargetPort.StrVal)
			if !slices.ContainsFunc(pod.Containers[0].Ports, func(c corev1.ContainerPort) bool {
				return c.Name == p.TargetPort.StrVal && (c.Protocol == p.Protocol)
			}) {
				t.Errorf("the service %s leads to a port %q that the pod does not have", s.Name, p.TargetPort.StrVal)
			}
		}
		if s.Name == governing {
			if s.Spec.ClusterIP != corev1.ClusterIPNone || !s.Spec.PublishNotReadyAddresses {
				t.Errorf("the service for members: %+v", s.Spec)
			}
			if !slices.Contains(pod.Containers[0].Args, "--join=dns+$(MEMBERS):7946") || env(&pod)["MEMBERS"] != s.Name {
				t.Errorf("members are looked for at %q: %q", env(&pod)["MEMBERS"], pod.Containers[0].Args)
			}
		} else if s.Spec.PublishNotReadyAddresses || !slices.Equal(ports[:2], []string{"http", "grpc"}) ||
			slices.ContainsFunc(ports, func(p string) bool {
				return slices.Contains([]string{"gossip", "gossip-udp", "peer", "admin", "health"}, p)
			}) {
			t.Errorf("the service for clients: %+v", s.Spec)
		}
	}
}

// checkMounts reports volumes that are missing, unused or mounted as single files, and flags of
// files that are in none.
func checkMounts(t *testing.T, pod corev1.PodSpec, configs []corev1.ConfigMap) {
	t.Helper()
	c := pod.Containers[0]
	var mounted []string
	for _, m := range c.VolumeMounts {
		mounted = append(mounted, m.Name)
		if m.SubPath != "" || !m.ReadOnly {
			t.Errorf("%s: a file of its own never changes, and nothing is written: %+v", m.Name, m)
		}
	}
	var volumes []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
		if v.ConfigMap != nil && strings.HasSuffix(v.ConfigMap.Name, "weir-rules") &&
			!slices.ContainsFunc(configs, func(c corev1.ConfigMap) bool {
				return c.Name == v.ConfigMap.Name && c.Data["rules.yaml"] != ""
			}) {
			t.Errorf("no ConfigMap %s with rules.yaml", v.ConfigMap.Name)
		}
	}
	if !slices.Equal(mounted, volumes) {
		t.Errorf("mounted are %q of %q", mounted, volumes)
	}
	for _, a := range c.Args {
		_, value, _ := strings.Cut(a, "=")
		if strings.HasPrefix(value, "/") && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return strings.HasPrefix(value+"/", m.MountPath+"/")
		}) {
			t.Errorf("%s: nothing is mounted there", a)
		}
	}
}

// With everything on, what the options add is there and fits together.
func TestOptions(t *testing.T) {
	all := decode(t, render(t, "full.yaml"))
	set := all.sets[0]
	if set.Spec.Replicas != nil || len(all.autoscalers) != 1 || all.autoscalers[0].Spec.ScaleTargetRef.Name != set.Name {
		t.Errorf("the number of members is set beside the autoscaler: %v, %+v", set.Spec.Replicas, all.autoscalers)
	}
	if c := all.certificates; len(c) != 1 || c[0].Spec.SecretName != "weir-tls" ||
		!slices.Contains(c[0].Spec.DNSNames, "weir.limits.svc") || !slices.Contains(c[0].Spec.DNSNames, "weir.example.com") {
		t.Errorf("certificates: %+v", c)
	} else if !slices.Contains(c[0].Spec.DNSNames, "localhost") ||
		!slices.Equal(c[0].Spec.IPAddresses, []string{"127.0.0.1"}) {
		t.Errorf("a sidecar, or kubectl port-forward, cannot verify the certificate: %+v", c)
	}
	members := all.services[0]
	if m := all.monitors; len(m) != 1 || m[0].Spec.Endpoints[0].Port != "admin" ||
		m[0].Spec.Endpoints[0].Scheme != "https" {
		t.Errorf("monitors: %+v", m)
	} else {
		for k, v := range m[0].Spec.Selector.MatchLabels {
			if members.Labels[k] != v {
				t.Errorf("the monitor selects %s=%s, and the service has %q", k, v, members.Labels[k])
			}
		}
	}
	// Files that flags name are there: those of a secret that is replaced, and of extraArgs.
	pod := set.Spec.Template.Spec
	keys := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "keys" })]
	if items := keys.Secret.Items; !slices.Contains(items, corev1.KeyToPath{Key: "next", Path: "second-secret"}) ||
		!slices.Contains(pod.Containers[0].Args, "--second-secret-file=/etc/weir/keys/second-secret") {
		t.Errorf("a second secret: %+v, %q", items, pod.Containers[0].Args)
	}
	mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "envoy" && m.MountPath == "/etc/envoy"
	})
	if !mounted || !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Name == "envoy" && v.ConfigMap.Name == "limits-envoy"
	}) {
		t.Errorf("the files of Envoy's service are not mounted: %+v", pod.Volumes)
	}
	// Members that have no certificates say so, and no others do.
	for values, want := range map[string]bool{"": true, "full.yaml": false, "secrets.yaml": false} {
		if args := decode(t, render(t, values)).sets[0].Spec.Template.Spec.Containers[0].Args; slices.Contains(args,
			"--insecure") != want {
			t.Errorf("%q: %q", values, args)
		}
	}
	// A listener that extraArgs opens can be asked through the service, and past the policy.
	if p := all.services[1].Spec.Ports; len(p) != 3 || p[2].Name != "envoy" || p[2].Port != 8085 ||
		p[2].TargetPort.StrVal != "envoy" {
		t.Errorf("the ports of clients: %+v", p)
	}
	policy := all.policies[0].Spec
	if p := policy.Ingress[1].Ports; len(p) != 3 || p[2].Port.IntVal != 8085 {
		t.Errorf("clients may ask at %+v", p)
	}
	if len(policy.Ingress) != 3 || policy.Ingress[1].From == nil || policy.Ingress[2].Ports[0].Port.IntVal != 8082 ||
		policy.Ingress[2].From == nil {
		t.Errorf("who may ask: %+v", policy.Ingress)
	}
	// Members never share an address with administration, unless it is exposed.
	for _, rule := range decode(t, render(t, "")).policies[0].Spec.Ingress {
		for _, p := range rule.Ports {
			if p.Port.IntVal == 8082 || p.Port.IntVal == 8083 {
				t.Errorf("port %d is open by default", p.Port.IntVal)
			}
		}
	}
}

// Alerts and dashboard of the chart are the files of deploy/, with the data source that is named.
func TestOneSource(t *testing.T) {
	all := decode(t, render(t, "full.yaml"))
	var want, got any
	if err := yaml.Unmarshal([]byte(read(t, "..", "prometheus", "alerts.yml")), &want); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(all.alerts[0].Spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if a, b := names(want), names(got); len(a) < 10 || !slices.Equal(a, b) {
		t.Errorf("alerts of the chart %q, of the file %q", b, a)
	}
	dashboard := strings.ReplaceAll(read(t, "..", "grafana", "dashboards", "weir.json"), `"weir-prometheus"`, `"main"`)
	for _, c := range all.configs {
		if c.Name == "weir-dashboard" && strings.TrimSpace(c.Data["weir.json"]) == strings.TrimSpace(dashboard) {
			return
		}
	}
	t.Error("the dashboard of the chart is not that of deploy/grafana")
}

// names are the alerts of a file.
func names(file any) (out []string) {
	for _, g := range file.(map[string]any)["groups"].([]any) {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			rule := r.(map[string]any)
			out = append(out, fmt.Sprint(rule["alert"], rule["expr"], rule["annotations"]))
		}
	}
	return out
}

// Values that do not fit together, or are none, are refused with what to do.
func TestRefusedValues(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"administration.expose=true,networkPolicy.enabled=false", "without networkPolicy.enabled"},
		{"serviceMonitor.enabled=true", "needs administration.expose"},
		{"serviceMonitor.enabled=true,administration.expose=true", "needs networkPolicy.administrationFrom"},
		{"peerTLS.insecure=false,peerTLS.csi.enabled=true", "needs an issuerName"},
		{"peerTLS.insecure=false,peerTLS.csi.enabled=true,peerTLS.existingSecret=a", "give one of them"},
		{"peerTLS.insecure=false", "members have no certificates"},
		{"peerTLS.existingSecret=a", "peerTLS.insecure is for members without certificates"},
		{"image.repository=", "image.repository is empty"},
		{"rules.existingConfigMap=", "there are no rules"},
		{"rules.content=version: 1", "rules has content and an existingConfigMap"},
		{"rules.existingConfigMap=,rules.content=a: [", "rules.content is not YAML"},
		{"rules.existingConfigMap=,rules.content=rules: {}", "does not begin with version: 1"},
		{"rules.existingConfigMap=,rules.content=version: 1", "everything would be allowed"},
		{"maxKeys=10000000", "a member may need 7625 MiB"},
		{"maxBytes=2000000000", "is too little for maxKeys"},
		{"resources.limits.memory=1Qi", "is not understood"},
		{"persistence.emptyDir=true", "without persistence.enabled"},
		{"persistence.enabled=true,persistence.interval=2h", "persistence.interval 2h is out of range: give 1s to 1h"},
		{"persistence.enabled=true,persistence.size=500Mi", "a member may need 687 MiB"},
		{"autoscaling.enabled=true,autoscaling.minReplicas=9", "minReplicas 9 is more than autoscaling.maxReplicas 7"},
		{`podLabels.app\.kubernetes\.io/name=a`, "podLabels has app.kubernetes.io/name"},
		{`commonLabels.helm\.sh/chart=a`, "commonLabels has helm.sh/chart"},
		{"tls.existingSecret=a,tls.clientCASecret=b", "asks no client for a certificate"},
		{"affinity.nodeAffinity.a=b", "affinity replaces antiAffinity"},
		{"podDisruptionBudget.unhealthyPodEvictionPolicy=Never", "unhealthyPodEvictionPolicy"},
		{"updateStrategy.type=Recreate", "updateStrategy"},
		{"tls.certManager.enabled=true", "issuerRef.name"},
		{"tls.clientCert=required", "tls.clientCASecret"},
		{"tls.existingSecret=a,tls.certManager.enabled=true,tls.certManager.issuerRef.name=b",
			"tls has an existingSecret and certManager.enabled"},
		{"networkPolicy.clientsFrom[0].podSelector.matchLabels.a=b,networkPolicy.enabled=false", "keeps nobody out"},
		{"networkPolicy.administrationFrom[0].podSelector.matchLabels.a=b", "without administration.expose"},
		{"shutdown.delaySeconds=20", "shutdown.timeoutSeconds 25 is too short"},
		{"service.extraPorts[0].name=peer,service.extraPorts[0].port=8085", "give names and ports of their own"},
		{"service.extraPorts[0].name=envoy,service.extraPorts[0].port=8082", "give names and ports of their own"},
		{"service.extraPorts[0].name=envoy", "port"},
		{"replica=5", "replica"},
		{"replicas=0", "replicas"},
		{"image.digest=latest", "digest"},
		{"antiAffinity=always", "antiAffinity"},
		{"keys.existingSecret=", "existingSecret"},
	} {
		_, said, err := helm(t, "template", "weir", chart, "--kube-version", kubernetes, "--values", "testdata/least.yaml",
			"--set", c.set)
		if err == nil || !strings.Contains(said, c.want) {
			t.Errorf("%s: %v, %s", c.set, err, said)
		}
	}
}

// helm lint finds nothing in any variant.
func TestLint(t *testing.T) {
	for _, values := range variants {
		args := []string{"lint", chart, "--strict", "--kube-version", kubernetes, "--values",
			"testdata/" + cmp.Or(values, "least.yaml")}
		if out, said, err := helm(t, args...); err != nil {
			t.Errorf("helm lint with %q: %v\n%s%s", values, err, out, said)
		}
	}
}
