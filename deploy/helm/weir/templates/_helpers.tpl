{{- define "weir.name" -}}
{{- $name := .Values.nameOverride | default "weir" }}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}{{ else if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The annotations of an object: those of all, and its own. The argument: the root, and its own. */ -}}
{{- define "weir.annotations" -}}
{{- with merge (dict) (last .) (first .).Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "weir.image" -}}
{{- $global := .Values.global | default dict }}
{{- with .Values.image }}
{{- with $global.imageRegistry | default .registry }}{{ . }}/{{ end }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "weir.pullSecrets" -}}
{{- $global := .Values.global | default dict }}
{{- with concat ($global.imagePullSecrets | default list) .Values.image.pullSecrets | uniq }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The limit of memory in bytes, empty if there is none. */ -}}
{{- define "weir.memory" -}}
{{- with (.Values.resources.limits | default dict).memory }}{{ include "weir.bytes" (list "resources.limits.memory" .) }}{{ end }}
{{- end }}

{{- /* A quantity in bytes. The argument: the name of the value, and the quantity. */ -}}
{{- define "weir.bytes" -}}
{{- $text := toString (last .) }}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 }}
{{- if regexMatch "^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" $text }}
{{- $unit := regexFind "[A-Za-z]+$" $text }}
{{- mulf (float64 (trimSuffix $unit $text)) (get $units $unit | default 1) | int64 }}
{{- else }}
{{- fail (printf "%s %s is not understood: give a number with Ki, Mi, Gi, Ti, k, M, G or T" (first .) $text) }}
{{- end }}
{{- end }}

{{- /* GOMEMLIMIT: nine tenths of the memory limit, unless it is given. */ -}}
{{- define "weir.goLimit" -}}
{{- if .Values.goLimit }}{{ .Values.goLimit }}{{ else }}
{{- with include "weir.memory" . }}{{ printf "%dMiB" (div (mul (int64 .) 9) 10485760) }}{{ end }}
{{- end }}
{{- end }}

{{- /* On OpenShift the platform gives users and groups from a range of the namespace. */ -}}
{{- define "weir.podSecurity" -}}
{{- $s := .Values.podSecurityContext }}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}{{ $s = omit $s "runAsUser" "runAsGroup" "fsGroup" }}{{ end }}
{{- toYaml $s }}
{{- end }}

{{- /* The number of members at the first start. */ -}}
{{- define "weir.expect" -}}
{{- .Values.cluster.expect | default (ternary .Values.autoscaling.minReplicas .Values.replicas .Values.autoscaling.enabled) }}
{{- end }}

{{- define "weir.tls" -}}
{{- if .Values.tls.existingSecret }}{{ .Values.tls.existingSecret }}{{ else if .Values.tls.certManager.enabled }}{{ include "weir.name" . }}-tls{{ end }}
{{- end }}

{{- define "weir.account" -}}
{{ .Values.serviceAccount.existing | default (include "weir.name" .) }}
{{- end }}

{{- /* What no schema can say of the values together. */ -}}
{{- define "weir.check" -}}
{{- with .Values }}
{{- if not .image.repository }}
{{- fail "image.repository is empty: build the image with the Dockerfile of the repository, push it, and name it, such as image.repository=registry.example.com/weir" }}
{{- end }}
{{- if and (not .rules.content) (not .rules.existingConfigMap) }}
{{- fail "there are no rules: give rules.content, or a ConfigMap with rules.yaml by rules.existingConfigMap" }}
{{- end }}
{{- if and .rules.content .rules.existingConfigMap }}
{{- fail "rules has content and an existingConfigMap: give one of them" }}
{{- end }}
{{- if .rules.content }}
{{- $rules := fromYaml .rules.content }}
{{- with $rules.Error }}{{ fail (printf "rules.content is not YAML: %s" .) }}{{ end }}
{{- if not (has (toString $rules.version) (list "1")) }}
{{- fail "rules.content does not begin with version: 1: it is no rules file (docs/rules.md)" }}
{{- end }}
{{- if not (or $rules.rules (regexMatch "--(envoy|gubernator|redis)-" (join " " .extraArgs))) }}
{{- fail "rules.content has no rules, so that everything would be allowed: give some" }}
{{- end }}
{{- end }}
{{- if not (or .peerTLS.existingSecret .peerTLS.csi.enabled .peerTLS.insecure) }}
{{- fail "members have no certificates: give peerTLS.existingSecret or peerTLS.csi, or let them speak without TLS by peerTLS.insecure=true" }}
{{- end }}
{{- if and .peerTLS.insecure (or .peerTLS.existingSecret .peerTLS.csi.enabled) }}
{{- fail "peerTLS.insecure is for members without certificates: leave it out" }}
{{- end }}
{{- if and .affinity (ne .antiAffinity "none") }}
{{- fail "affinity replaces antiAffinity: set antiAffinity to none, and say in affinity what you want" }}
{{- end }}
{{- with include "weir.memory" $ }}
{{- $need := add (mul 3 (int64 $.Values.maxBytes | default (mul 256 (int64 $.Values.maxKeys)))) 314572800 }}
{{- if gt $need (int64 .) }}
{{- fail (printf "resources.limits.memory %v is too little for maxKeys %v: with copies for other members, their logs and 300 MiB for the rest a member may need %d MiB; raise the limit, lower maxKeys, or bound the memory of counters by maxBytes" $.Values.resources.limits.memory (int64 $.Values.maxKeys) (add 1 (div $need 1048576))) }}
{{- end }}
{{- end }}
{{- if and .persistence.emptyDir (not .persistence.enabled) }}
{{- fail "persistence.emptyDir keeps nothing without persistence.enabled: enable it, or leave emptyDir out" }}
{{- end }}
{{- if .persistence.enabled }}
{{- $each := get (dict "s" 1 "m" 60 "h" 3600) (regexFind "[smh]$" .persistence.interval) }}
{{- $seconds := mul (int64 (regexFind "^[0-9]+" .persistence.interval)) $each }}
{{- if or (lt $seconds 1) (gt $seconds 3600) }}
{{- fail (printf "persistence.interval %s is out of range: give 1s to 1h" .persistence.interval) }}
{{- end }}
{{- $need := mul 720 (int64 .maxKeys) }}
{{- if gt $need (int64 (include "weir.bytes" (list "persistence.size" .persistence.size))) }}
{{- fail (printf "persistence.size %v is too little for maxKeys %v: with copies for other members, twice 60 bytes for each counter, and as much again after a failure of the disk, a member may need %d MiB" .persistence.size (int64 .maxKeys) (add 1 (div $need 1048576))) }}
{{- end }}
{{- end }}
{{- if and .autoscaling.enabled (gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas)) }}
{{- fail (printf "autoscaling.minReplicas %v is more than autoscaling.maxReplicas %v" .autoscaling.minReplicas .autoscaling.maxReplicas) }}
{{- end }}
{{- range $of, $labels := dict "podLabels" .podLabels "commonLabels" .commonLabels }}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{- if hasKey $labels . }}
{{- fail (printf "%s has %s, which the chart sets: leave it out" $of .) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .tls.clientCASecret (eq .tls.clientCert "none") }}
{{- fail "tls.clientCASecret asks no client for a certificate while tls.clientCert is none: set tls.clientCert to required or optional" }}
{{- end }}
{{- if and .administration.expose (not .networkPolicy.enabled) }}
{{- fail "administration.expose opens metrics, names of users and profiles to the whole cluster without networkPolicy.enabled: enable it, and name those who may ask in networkPolicy.administrationFrom" }}
{{- end }}
{{- if and .serviceMonitor.enabled (not .administration.expose) }}
{{- fail "serviceMonitor.enabled needs administration.expose: metrics are on loopback otherwise" }}
{{- end }}
{{- if and .serviceMonitor.enabled (not .networkPolicy.administrationFrom) }}
{{- fail "serviceMonitor.enabled needs networkPolicy.administrationFrom: name the pods of Prometheus, which may not ask otherwise" }}
{{- end }}
{{- if and .peerTLS.existingSecret .peerTLS.csi.enabled }}
{{- fail "peerTLS has an existingSecret and csi.enabled: give one of them" }}
{{- end }}
{{- if and .peerTLS.csi.enabled (not .peerTLS.csi.issuerName) }}
{{- fail "peerTLS.csi.enabled needs an issuerName: the cert-manager issuer of members' certificates" }}
{{- end }}
{{- if and .tls.certManager.enabled (not .tls.certManager.issuerRef.name) }}
{{- fail "tls.certManager.enabled needs tls.certManager.issuerRef.name" }}
{{- end }}
{{- if and .tls.existingSecret .tls.certManager.enabled }}
{{- fail "tls has an existingSecret and certManager.enabled: give one of them" }}
{{- end }}
{{- if and .networkPolicy.clientsFrom (not .networkPolicy.enabled) }}
{{- fail "networkPolicy.clientsFrom keeps nobody out without networkPolicy.enabled: enable it, or leave clientsFrom out" }}
{{- end }}
{{- if and .networkPolicy.administrationFrom (not .administration.expose) }}
{{- fail "networkPolicy.administrationFrom has no effect: administration is on loopback without administration.expose" }}
{{- end }}
{{- if and (ne .tls.clientCert "none") (not (and .tls.clientCASecret (include "weir.tls" $))) }}
{{- fail (printf "tls.clientCert %s needs a certificate of the server and tls.clientCASecret, the authorities of clients" .tls.clientCert) }}
{{- end }}
{{- $names := list "http" "grpc" "health" "gossip" "gossip-udp" "peer" "admin" }}
{{- $ports := list 8080 8081 8082 8083 7946 7947 }}
{{- range .service.extraPorts }}
{{- if or (has .name $names) (has (int .port) $ports) }}
{{- fail (printf "service.extraPorts has %s, %v, which another listener or entry has: give names and ports of their own" .name .port) }}
{{- end }}
{{- $names = append $names .name }}
{{- $ports = append $ports (int .port) }}
{{- end }}
{{- if le (int .shutdown.timeoutSeconds) (int (add .shutdown.delaySeconds 10)) }}
{{- fail (printf "shutdown.timeoutSeconds %v is too short: handing over takes up to 10 s after shutdown.delaySeconds (%v)" .shutdown.timeoutSeconds .shutdown.delaySeconds) }}
{{- end }}
{{- end }}
{{- end }}
