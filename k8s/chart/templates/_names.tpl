{{- /* What several templates write alike. Where a service is concerned they take (dict "root" $ "name" NAME). */}}

{{- define "cosyserve.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "cosyserve.labels" -}}
{{ include "cosyserve.selector" . }}
app.kubernetes.io/part-of: cosyserve
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "cosyserve.metadata" -}}
name: {{ .root.Release.Name }}-{{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "cosyserve.labels" . | nindent 2 }}
{{- end }}

{{- /* An image by the name behind image.repository, with the digest that pins it or its tag. */}}
{{- define "cosyserve.image" -}}
{{- $image := .root.Values.image -}}
{{- $digest := get $image.digests .image -}}
{{ printf "%s-%s" $image.repository .image }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Longer than the longest request, so that a pod which is asked to end never cuts one. */}}
{{- define "cosyserve.drainSeconds" -}}
{{ add .Values.longestUtteranceSeconds 15 }}
{{- end }}

{{- define "cosyserve.graceSeconds" -}}
{{ add .Values.preStopSeconds (include "cosyserve.drainSeconds" .) 15 }}
{{- end }}

{{- define "cosyserve.modelIsMounted" -}}
{{- if or .Values.model.claim .Values.model.hostPath .Values.model.fetch.url }}true{{ end }}
{{- end }}

{{- /* The limits and requests of a service, its GPU among the limits. */}}
{{- define "cosyserve.resources" -}}
{{- $resources := deepCopy .service.resources -}}
{{- with .service.gpu -}}
{{- if .count -}}
{{- $_ := set $resources "limits" (merge (dict .resource (toString .count)) ($resources.limits | default dict)) -}}
{{- end -}}
{{- end -}}
{{ toYaml $resources }}
{{- end }}

{{- /* Where a pod may run: node selector, tolerations (of a GPU's taint, too), runtime class. */}}
{{- define "cosyserve.nodes" -}}
{{- $tolerations := .service.tolerations | default list -}}
{{- $selector := .service.nodeSelector | default dict -}}
{{- with .service.gpu -}}
{{- if .count -}}
{{- $tolerations = append $tolerations (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule") -}}
{{- if .runtimeClass }}
runtimeClassName: {{ .runtimeClass }}
{{- end }}
{{- end }}
{{- end }}
{{- with $selector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml (uniq .) | nindent 2 }}
{{- end }}
{{- end }}

{{- define "cosyserve.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "cosyserve.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Reasons for what checkov finds and is meant so. */}}
{{- define "cosyserve.policySkips" -}}
{{- $skips := list "CKV_K8S_11=A limit for the CPU stops a process in the middle of a sentence; requests keep a share for each pod" -}}
{{- $image := get .root.Values.image.digests .image -}}
{{- if not $image }}{{ $skips = append $skips "CKV_K8S_43=The tag is that of the release; image.digests pins digests where the registry has them" }}{{ end -}}
{{- if ne .root.Values.image.pullPolicy "Always" }}{{ $skips = append $skips "CKV_K8S_15=A tag of a release is never moved, so that an image which is there is the right one" }}{{ end -}}
{{- if .secretVariables }}{{ $skips = append $skips "CKV_K8S_35=Libraries of object stores read their credentials from variables" }}{{ end -}}
{{- range .more }}{{ $skips = append $skips . }}{{ end -}}
{{- range $index, $skip := $skips }}
checkov.io/skip{{ add1 $index }}: {{ $skip | quote }}
{{- end }}
{{- end }}
