{{- /* The model directory: an existing claim, a directory of the node, or fetched by an init container and compared with known sha256. */}}

{{- define "cosyserve.modelMount" -}}
{{- if include "cosyserve.modelIsMounted" . }}
- name: model
  mountPath: {{ .Values.model.path }}
  readOnly: true
{{- end }}
{{- end }}

{{- define "cosyserve.modelVolume" -}}
{{- if .Values.model.claim }}
- name: model
  persistentVolumeClaim:
    claimName: {{ .Values.model.claim }}
    readOnly: true
{{- else if .Values.model.hostPath }}
- name: model
  hostPath:
    path: {{ .Values.model.hostPath }}
    type: Directory
{{- else if .Values.model.fetch.url }}
- name: model
  emptyDir:
    sizeLimit: {{ .Values.model.fetch.size }}
- name: model-pins
  configMap:
    name: {{ .Values.model.fetch.pins }}
{{- end }}
{{- end }}

{{- /* The directory of another flow and vocoder, in pods of token2wav. */}}
{{- define "cosyserve.decoderMount" -}}
{{- with .Values.model.token2wav }}
{{- if or .claim .hostPath }}
- name: token2wav-model
  mountPath: {{ .path }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{- define "cosyserve.decoderVolume" -}}
{{- with .Values.model.token2wav }}
{{- if .claim }}
- name: token2wav-model
  persistentVolumeClaim:
    claimName: {{ .claim }}
    readOnly: true
{{- else if .hostPath }}
- name: token2wav-model
  hostPath:
    path: {{ .hostPath }}
    type: Directory
{{- end }}
{{- end }}
{{- end }}

{{- define "cosyserve.modelFetch" -}}
{{- with .Values.model.fetch }}
{{- if .url }}
- name: fetch-model
  image: {{ include "cosyserve.image" (dict "root" $ "image" "frontend") }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  command: [python, -m, cosyserve, model, download]
  args:
    - {{ $.Values.model.path }}
    - --mirror
    - {{ .url | quote }}
    - --pins
    - /etc/cosyserve/pins/download.json
  env:
    - name: HOME
      value: /tmp
  {{- with .secret }}
  envFrom:
    - secretRef:
        name: {{ . }}
  {{- end }}
  resources:
    requests: {cpu: 250m, memory: 256Mi}
    limits: {memory: 1Gi}
  securityContext:
    {{- include "cosyserve.containerSecurity" $ | nindent 4 }}
  volumeMounts:
    - name: scratch
      mountPath: /tmp
    - name: model
      mountPath: {{ $.Values.model.path }}
    - name: model-pins
      mountPath: /etc/cosyserve/pins
      readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{- /* Where llm and token2wav keep kernels and engines. */}}
{{- define "cosyserve.kernelsVolume" -}}
- name: kernels
  {{- if .Values.kernels.claim }}
  persistentVolumeClaim:
    claimName: {{ .Values.kernels.claim }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
