{{- define "tirjudge.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tirjudge.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Labels that select the pods of a component: (list . "server") */}}
{{- define "tirjudge.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "tirjudge.labels" -}}
{{- $root := index . 0 -}}
{{ include "tirjudge.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* Fields of every pod: (list . "server" .Values.server) */}}
{{- define "tirjudge.pod" -}}
{{- $root := index . 0 -}}
{{- $part := index . 2 -}}
serviceAccountName: {{ include "tirjudge.name" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "tirjudge.selector" . | nindent 8 }}
{{- end }}

{{- define "tirjudge.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* Host names of the servers, separated by spaces. */}}
{{- define "tirjudge.serverHosts" -}}
{{- $service := printf "%s-server" (include "tirjudge.name" .) -}}
{{- $namespaced := printf "%s.%s" $service .Release.Namespace -}}
{{- $hosts := list $service $namespaced (printf "%s.svc" $namespaced) (printf "%s.svc.cluster.local" $namespaced) -}}
{{- join " " (concat $hosts .Values.server.allowedHosts) -}}
{{- end }}

{{/* URLs of the engines, one per line. */}}
{{- define "tirjudge.engines" -}}
{{- $name := include "tirjudge.name" . -}}
{{- range .Values.engines.urls }}
{{ . }}
{{- end }}
{{- if .Values.vllm.enabled }}
{{- range $i := until (int .Values.vllm.replicas) }}
http://{{ $name }}-vllm-{{ $i }}.{{ $name }}-vllm.{{ $.Release.Namespace }}.svc:8000
{{- end }}
{{- end }}
{{- end }}

{{- define "tirjudge.hasEngines" -}}
{{- if or .Values.engines.urls .Values.vllm.enabled }}yes{{ end }}
{{- end }}

{{- define "tirjudge.sandboxes" -}}
{{- $name := include "tirjudge.name" . -}}
{{- $urls := list -}}
{{- range $i := until (int .Values.sandbox.replicas) }}
{{- $urls = append $urls (printf "http://%s-sandbox-%d.%s-sandbox.%s.svc:8090" $name $i $name $.Release.Namespace) }}
{{- end }}
{{- join " " $urls }}
{{- end }}
