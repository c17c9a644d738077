{{- /* Whether an autoscaler decides the number of pods of a service. */}}
{{- define "cosyserve.scales" -}}
{{- $autoscaling := .root.Values.autoscaling }}
{{- $own := (get .root.Values.services .name).autoscaling }}
{{- /* A HorizontalPodAutoscaler that neither CPU nor load concerns would look at the CPU all the same. */}}
{{- $measured := or (eq $autoscaling.kind "keda") $autoscaling.externalMetrics (gt (int $own.cpuPercent) 0) }}
{{- if and (ne $autoscaling.kind "none") $own.enabled $measured }}true{{ end }}
{{- end }}

{{- /* The load of a service as PromQL: the share in use of what all its pods can take. Pods are then pods * load / target (metricType Value). */}}
{{- define "cosyserve.load" -}}
{{- $of := tpl .root.Values.autoscaling.prometheus.selector .root -}}
{{- if eq .name "llm" -}}
(sum(cosyserve_llm_running{ {{- $of -}} }) + sum(cosyserve_llm_waiting{ {{- $of -}} })) / sum(cosyserve_llm_slots{ {{- $of -}} })
{{- else if eq .name "token2wav" -}}
max(label_replace(sum(cosyserve_token2wav_pages_used{ {{- $of -}} }) / sum(cosyserve_token2wav_pages{ {{- $of -}} }), "by", "pages", "", "") or label_replace(1 - avg(cosyserve_token2wav_slack_ratio{ {{- $of -}} }), "by", "slack", "", ""))
{{- else -}}
sum(cosyserve_streams_active{service="{{ .name }}",{{ $of }}}) / sum(cosyserve_streams_limit{service="{{ .name }}",{{ $of }}})
{{- end -}}
{{- end }}

{{- /* More pods at once, fewer one by one: who leaves has to finish its streams first. */}}
{{- define "cosyserve.behavior" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  selectPolicy: Max
  policies:
    - {type: Percent, value: 100, periodSeconds: 30}
    - {type: Pods, value: 2, periodSeconds: 30}
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.scaleDown.stabilizationSeconds }}
  selectPolicy: Min
  policies:
    - {type: Pods, value: 1, periodSeconds: {{ .Values.autoscaling.scaleDown.secondsForEachPod }}}
{{- end }}
