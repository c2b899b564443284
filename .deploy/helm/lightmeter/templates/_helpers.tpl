{{- define "lightmeter.labels" -}}
app.kubernetes.io/name: lightmeter
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "lightmeter.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "lightmeter.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: LIGHTMETER_DATABASE
    value: "postgresql://{{ .Values.database.user }}@{{ .Values.database.host }}:{{ .Values.database.port }}/{{ .Values.database.name }}?sslmode={{ .Values.database.sslMode }}"
  - name: PGPASSWORD
    valueFrom:
      secretKeyRef: {name: {{ .Values.database.secret }}, key: {{ .Values.database.secretKey }}}
  - name: OTEL_EXPORTER_OTLP_ENDPOINT
    value: {{ .Values.otlpEndpoint | quote }}
envFrom:
{{- range .Values.providerSecrets }}
  - secretRef: {name: {{ . }}}
{{- else }} []
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: temporary, mountPath: /tmp}
{{- end }}

{{- define "lightmeter.volumes" -}}
- name: temporary
  emptyDir: {}
{{- end }}

{{- define "lightmeter.pullSecrets" -}}
imagePullSecrets:
{{- range .Values.image.pullSecrets }}
  - name: {{ . }}
{{- else }} []
{{- end }}
{{- end }}
