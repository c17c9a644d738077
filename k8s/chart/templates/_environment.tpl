{{- /* The variables of a service: (dict "root" $ "name" NAME "service" SERVICE). What `settings` names comes last and wins. */}}
{{- define "cosyserve.environment" -}}
{{- $values := .root.Values }}
{{- $service := .service }}
{{- $prefix := printf "COSYSERVE_%s_" (upper .name) }}
{{- $stage := has .name (list "frontend" "llm" "token2wav") }}
{{- $tls := $service.tlsSecret | default $values.tls.secret }}
{{- $set := dict "LISTEN" (printf "0.0.0.0:%d" (int $service.port)) "HEALTH_LISTEN" (printf "0.0.0.0:%d" (int $values.healthPort)) "DRAIN_SECONDS" (include "cosyserve.drainSeconds" .root) }}
{{- if $tls }}
{{- $_ := set $set "TLS_CERTIFICATE" "/etc/cosyserve/tls/tls.crt" }}
{{- $_ := set $set "TLS_KEY" "/etc/cosyserve/tls/tls.key" }}
{{- if or $stage $values.tls.publicClientCertificates }}
{{- $_ := set $set "TLS_CLIENT_CA" "/etc/cosyserve/tls/ca.crt" }}
{{- end }}
{{- if and $stage $values.tls.stageCallers }}
{{- $_ := set $set "TLS_CLIENT_NAMES" (join "," $values.tls.stageCallers) }}
{{- end }}
{{- if not $stage }}
{{- $_ := set $set "CALLS_CA" "/etc/cosyserve/tls/ca.crt" }}
{{- $_ := set $set "CALLS_CERTIFICATE" "/etc/cosyserve/tls/tls.crt" }}
{{- $_ := set $set "CALLS_KEY" "/etc/cosyserve/tls/tls.key" }}
{{- /* The gateway calls the orchestrators' headless Service, whose name their certificates need not have. */}}
{{- $called := ternary (printf "%s-orchestrator" .root.Release.Name) "" (eq .name "gateway") }}
{{- with $values.tls.serverName | default $called }}
{{- $_ := set $set "CALLS_NAME" . }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $values.model.token2wav.path (eq .name "token2wav") }}
{{- $_ := set $set "DECODER_MODEL" $values.model.token2wav.path }}
{{- end }}
{{- if $service.wyomingPort }}
{{- $_ := set $set "WYOMING_LISTEN" (printf "0.0.0.0:%d" (int $service.wyomingPort)) }}
{{- end }}
{{- if eq .name "frontend" }}
{{- if or $values.voices.claim $values.voices.url }}
{{- $_ := set $set "VOICES_URL" (ternary "/voices" $values.voices.url (not (empty $values.voices.claim))) }}
{{- end }}
{{- end }}
{{- if eq .name "orchestrator" }}
{{- if $values.access.secret }}
{{- $_ := set $set "KEYS_FILE" "/etc/cosyserve/keys/keys.json" }}
{{- end }}
{{- $_ := set $set "INSECURE" (toString $values.access.insecure) }}
{{- /* No request goes on for longer than a pod that is asked to end waits for it. */}}
{{- $_ := set $set "MAX_REQUEST_SECONDS" (toString $values.longestUtteranceSeconds) }}
{{- $_ := set $set "MAX_STREAM_SECONDS" (toString $values.longestUtteranceSeconds) }}
{{- /* Also without keys: tokens bring limits, too. */}}
{{- if eq (include "cosyserve.scales" .) "true" }}
{{- $_ := set $set "LIMIT_PARTS_NAME" (printf "%s-orchestrator-pods" .root.Release.Name) }}
{{- else }}
{{- $_ := set $set "LIMIT_PARTS" (toString (max 1 $service.replicas)) }}
{{- end }}
{{- end }}
{{- if eq .name "gateway" }}
{{- if $values.access.wyomingSecret }}
{{- $_ := set $set "WYOMING_API_KEY_FILE" "/etc/cosyserve/wyoming/api-key" }}
{{- end }}
{{- $_ := set $set "REQUIRE_KEY" (toString (not $values.access.insecure)) }}
{{- $_ := set $set "INSECURE" (toString $values.access.insecure) }}
{{- end }}
{{- if and $values.engineBuild.token2wav (eq .name "token2wav") }}
{{- $_ := set $set "AUTO_FIRST" "tensorrt" }}
{{- $_ := set $set "ENGINE_PRECISION" $values.engineBuild.precision }}
{{- end }}
{{- if and $values.engineBuild.llm (eq .name "llm") }}
{{- $_ := set $set "AUTO_FIRST" "tensorrt_llm" }}
{{- $_ := set $set "CONVERTED" "/var/cache/cosyserve/llm-hf" }}
{{- end }}
{{- range $key, $value := $service.settings }}
{{- $_ := set $set $key (tpl $value $.root) }}
{{- end }}
{{- range $key := keys $set | sortAlpha }}
- name: {{ $prefix }}{{ $key }}
  value: {{ get $set $key | quote }}
{{- end }}
{{- if has .name (list "llm" "token2wav") }}
- name: COSYSERVE_CACHE_DIR
  value: /var/cache/cosyserve
{{- end }}
{{- with $values.telemetry.otlpEndpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- end }}
