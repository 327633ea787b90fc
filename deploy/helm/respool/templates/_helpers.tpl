{{- define "respool.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "respool.labels" -}}
app.kubernetes.io/name: respool
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "respool.selector" -}}
app.kubernetes.io/name: respool
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "respool.check" -}}
{{- if not .Values.insecure -}}
{{- fail "these brokers do not log clients in: set insecure=true to accept that, and see networkPolicy" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.etcd.endpoints) -}}
{{- fail "more than one broker needs etcd: set etcd.endpoints" -}}
{{- end -}}
{{- end -}}
