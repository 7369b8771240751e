{{- define "weir.name" -}}
{{- if contains "weir" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-weir" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
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
{{- end }}

{{- define "weir.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
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
