{{- /* What the schema cannot say: values that contradict each other stop the installation. */}}
{{- define "cosyserve.checks" -}}
{{- $values := .Values }}
{{- $orchestrator := $values.services.orchestrator.settings }}
{{- if not (or $values.access.secret $values.access.insecure (get $orchestrator "JWT_ISSUER")) }}
{{- fail "callers need keys, or every caller in the cluster could speak, make voices and delete them: access.secret names a Secret with keys.json (cosyserve keys add), or access.insecure=true says that this is wanted" }}
{{- end }}
{{- /* helm allows more than the name of a Service may be, which is this and -orchestrator-pods. */}}
{{- if or (gt (len .Release.Name) 40) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name)) }}
{{- fail (printf "the release is named %q, but Services are named after it: allowed are 1 to 40 lower-case letters, digits and hyphens, with a letter first and no hyphen last" .Release.Name) }}
{{- end }}
{{- if and $values.services.gateway.wyomingPort (not (or $values.access.wyomingSecret $values.access.insecure)) }}
{{- fail "callers of Wyoming have no keys: access.wyomingSecret names a Secret with api-key, the key for which they speak, or access.insecure=true says that everyone is served" }}
{{- end }}
{{- range $name := list "MAX_REQUEST_SECONDS" "MAX_STREAM_SECONDS" }}
{{- $seconds := get $orchestrator $name }}
{{- if gt (float64 ($seconds | default "0")) (float64 $values.longestUtteranceSeconds) }}
{{- fail (printf "services.orchestrator.settings.%s is %s, above longestUtteranceSeconds (%v): a pod that is asked to end would cut such a request; raise longestUtteranceSeconds" $name $seconds $values.longestUtteranceSeconds) }}
{{- end }}
{{- end }}
{{- range $name, $service := $values.services }}
{{- if has (int $values.healthPort) (list (int $service.port) (int ($service.wyomingPort | default 0))) }}
{{- fail (printf "healthPort is %v, which is a port of services.%s, too" $values.healthPort $name) }}
{{- end }}
{{- if eq (int $service.port) (int ($service.wyomingPort | default 0)) }}
{{- fail (printf "services.%s: port and wyomingPort are both %v" $name $service.port) }}
{{- end }}
{{- if and $service.tlsSecret (not $values.tls.secret) }}
{{- fail (printf "services.%s.tlsSecret replaces tls.secret for one service, and tls.secret is empty: services speak TLS with each other, or none does" $name) }}
{{- end }}
{{- if hasKey $service.settings "DRAIN_SECONDS" }}
{{- fail (printf "services.%s.settings.DRAIN_SECONDS follows from longestUtteranceSeconds; set that" $name) }}
{{- end }}
{{- end }}
{{- if and (or $values.engineBuild.llm $values.engineBuild.token2wav) (not $values.kernels.claim) }}
{{- fail "engineBuild keeps engines where kernels.claim says: name an existing PersistentVolumeClaim that the Job and the pods of llm and token2wav may mount" }}
{{- end }}
{{- if and (or $values.engineBuild.llm $values.engineBuild.token2wav) (not (include "cosyserve.modelIsMounted" .)) }}
{{- fail "engineBuild builds engines of published weights: name model.claim, model.hostPath or model.fetch.url" }}
{{- end }}
{{- range $name := list "llm" "token2wav" }}
{{- if and (get $values.engineBuild $name) (not (get $values.services $name).gpu.count) }}
{{- fail (printf "engineBuild.%s builds for a GPU: services.%s.gpu.count is 0" $name $name) }}
{{- end }}
{{- end }}
{{- if and (eq $values.autoscaling.kind "keda") (not $values.autoscaling.prometheus.address) }}
{{- fail "autoscaling.kind=keda asks a Prometheus: autoscaling.prometheus.address is empty, such as http://prometheus.monitoring:9090" }}
{{- end }}
{{- range $name, $service := $values.services }}
{{- if gt (int $service.autoscaling.min) (int $service.autoscaling.max) }}
{{- fail (printf "services.%s.autoscaling: min is %v, above max, %v" $name $service.autoscaling.min $service.autoscaling.max) }}
{{- end }}
{{- end }}
{{- range $kind := list "http" "grpc" }}
{{- $route := get $values.routes $kind }}
{{- if and $route.enabled (not $route.parents) }}
{{- fail (printf "routes.%s.parents names no Gateway that takes the route" $kind) }}
{{- end }}
{{- if and $route.enabled $values.tls.secret (not $values.routes.caConfigMap) }}
{{- fail (printf "routes.%s leads to a port with TLS: routes.caConfigMap names a ConfigMap with ca.crt, by which the Gateway knows it" $kind) }}
{{- end }}
{{- end }}
{{- end }}
