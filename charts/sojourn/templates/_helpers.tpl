{{- define "sojourn.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "sojourn.selector" -}}
app.kubernetes.io/name: sojourn
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sojourn.labels" -}}
{{ include "sojourn.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "sojourn.settings" -}}
{{- $name := include "sojourn.fullname" . -}}
{{- $own := dict
  "prometheus" .Values.prometheus
  "tick" .Values.tick
  "lease" (dict "name" $name)
  "webhook" (dict
    "enabled" .Values.webhook.enabled
    "port" .Values.webhook.port
    "service" (printf "%s-webhook" $name)
    "secret" (printf "%s-webhook-tls" $name)
    "configuration" (printf "%s-validating" $name))
  "healthPort" 8081
  "metricsPort" 9090 -}}
{{- if .Values.certManager.enabled -}}
{{- $_ := set $own.webhook "certificates" "Mounted" -}}
{{- $_ := set $own.webhook "folder" "/run/sojourn/tls" -}}
{{- end -}}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.settings)) -}}
{{- end -}}
