{{- /* Pods of a pool are called NAME-runner-POOL-N, and the labels of a StatefulSet's pods end at 63 characters. */}}
{{- define "bide.name" -}}
{{- if contains "bide" .Release.Name -}}
{{- .Release.Name | trunc 28 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-bide" (.Release.Name | trunc 23 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "bide.labels" -}}
app.kubernetes.io/name: bide
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "bide.serverLabels" -}}
app.kubernetes.io/name: bide
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "bide.runnerLabels" -}}
app.kubernetes.io/name: bide
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: runner
{{- end -}}

{{- define "bide.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "bide publishes no image: build one with deploy/compose/Containerfile and name it in image.repository." -}}
{{- end -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote -}}
{{- end -}}

{{- define "bide.authSecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-tokens" (include "bide.name" .)) -}}
{{- end -}}

{{- define "bide.databaseSecret" -}}
{{- if .Values.database.existingSecret -}}
{{- .Values.database.existingSecret -}}
{{- else if .Values.database.url -}}
{{- printf "%s-database" (include "bide.name" .) -}}
{{- else -}}
{{- fail "The servers need a PostgreSQL database: set database.existingSecret, or database.url." -}}
{{- end -}}
{{- end -}}

{{- define "bide.url" -}}
{{- printf "http://%s-server.%s.svc:8811" (include "bide.name" .) .Release.Namespace -}}
{{- end -}}

{{- /* One pool with all that it has, as YAML: what it says itself wins over poolDefaults. */}}
{{- define "bide.pool" -}}
{{- $pool := mustMergeOverwrite (deepCopy .root.Values.poolDefaults) .pool -}}
{{- if and (eq $pool.isolation "pod") (not (hasKey .pool "slots")) -}}
{{- $_ := set $pool "slots" 1 -}}
{{- end -}}
{{- if and (eq $pool.isolation "pod") (ne (int $pool.slots) 1) -}}
{{- fail (printf "Pool %s has isolation: pod, where the pod is the sandbox of one session: it can only have slots: 1." $pool.name) -}}
{{- end -}}
{{- if gt (int $pool.autoscale.min) (int $pool.autoscale.max) -}}
{{- fail (printf "Pool %s has autoscale.min above autoscale.max." $pool.name) -}}
{{- end -}}
{{- toYaml $pool -}}
{{- end -}}
