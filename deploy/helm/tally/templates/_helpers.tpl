{{/* The name of all objects: that of the release, with -tally appended if it does not contain tally. */}}
{{- define "tally.name" -}}
{{- if contains "tally" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-tally" (.Release.Name | trunc 34 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "tally.selector" -}}
app.kubernetes.io/name: tally
app.kubernetes.io/component: controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tally.labels" -}}
{{ include "tally.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Which controllers run, separated by commas. */}}
{{- define "tally.controllers" -}}
{{- if .Values.controllers }}{{ join "," (sortAlpha .Values.controllers) }}{{ else if .Values.managedBy }}after,job{{ else }}after,job,ttl{{ end }}
{{- end }}

{{- define "tally.subject" -}}
- kind: ServiceAccount
  name: {{ include "tally.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
