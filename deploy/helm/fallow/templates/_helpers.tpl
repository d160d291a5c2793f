{{- define "fallow.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "fallow.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "fallow.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "fallow.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Which workloads there are, by role; the one that does everything is `all`. */}}
{{- define "fallow.roles" -}}
{{- if .Values.split }}collector analyzer actor dashboard{{ else }}all{{ end -}}
{{- end -}}

{{/* The name of a role's objects: (list $ "actor") */}}
{{- define "fallow.part" -}}
{{- $full := include "fallow.fullname" (index . 0) -}}
{{- if eq (index . 1) "all" }}{{ $full }}{{ else }}{{ $full }}-{{ index . 1 }}{{ end -}}
{{- end -}}

{{- define "fallow.labels" -}}
app.kubernetes.io/name: {{ include "fallow.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: fallow
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* What selectors match: (list $ "actor") */}}
{{- define "fallow.selector" -}}
app.kubernetes.io/name: {{ include "fallow.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The account of a role: only those that ask the cluster have one that may. */}}
{{- define "fallow.account" -}}
{{- $top := index . 0 -}}
{{- if not $top.Values.serviceAccount.create -}}
{{- default "default" $top.Values.serviceAccount.name -}}
{{- else if and $top.Values.serviceAccount.name (eq (index . 1) "all") -}}
{{- $top.Values.serviceAccount.name -}}
{{- else -}}
{{- include "fallow.part" . -}}
{{- end -}}
{{- end -}}

{{- define "fallow.claim" -}}
{{- default (include "fallow.fullname" .) .Values.persistence.existingClaim -}}
{{- end -}}

{{- define "fallow.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}{{ end -}}
{{- end -}}

{{/* fallow.yaml: what follows from where things are mounted, and over it the values. */}}
{{- define "fallow.settings" -}}
{{- $service := dict "listen" "0.0.0.0:9410" -}}
{{- if .Values.split -}}
{{- $_ := set $service "url" (printf "http://%s.%s.svc:9410" (include "fallow.part" (list . "actor")) .Release.Namespace) -}}
{{- end -}}
{{- if gt (int .Values.shards) 1 -}}
{{- $_ := set $service "shards" (int .Values.shards) -}}
{{- end -}}
{{- $warehouse := dict -}}
{{- if .Values.ray.enabled -}}
{{- $head := printf "ray://%s-ray-head-svc.%s.svc:10001" (include "fallow.fullname" .) .Release.Namespace -}}
{{- $warehouse = dict "workers" "ray" "ray_address" (default $head .Values.ray.address) -}}
{{- end -}}
{{- $lease := dict "namespace" .Release.Namespace -}}
{{- $actions := dict "policies" "/etc/fallow/policies" "lease" $lease -}}
{{- $ours := dict "home" "/var/lib/fallow" "service" $service "actions" $actions -}}
{{- if $warehouse -}}{{- $_ := set $ours "warehouse" $warehouse -}}{{- end -}}
{{- $merged := mustMergeOverwrite $ours (deepCopy .Values.settings) -}}
{{- if (include "fallow.shown" .) -}}
{{- $pages := dict "dashboard" (dict "listen" "0.0.0.0:8501") -}}
{{- $merged = mustMergeOverwrite $pages $merged -}}
{{- end -}}
{{- toYaml $merged -}}
{{- end -}}

{{/* Whether pages answer beyond their pod: only with a sign-in. */}}
{{- define "fallow.shown" -}}
{{- if dig "dashboard" "oidc" "metadata_url" "" .Values.settings }}yes{{ end -}}
{{- end -}}

{{- define "fallow.acts" -}}
{{- if dig "actions" "enabled" false .Values.settings }}yes{{ end -}}
{{- end -}}

{{/* Whether a canary proves that acting works: only with an image, and only where Fallow acts. */}}
{{- define "fallow.canary" -}}
{{- if and (include "fallow.acts" .) (dig "actions" "canary" "image" "" .Values.settings) }}yes{{ end -}}
{{- end -}}

{{/* What cannot work is refused before anything is made. */}}
{{- define "fallow.check" -}}
{{- if .Values.split -}}
{{- if not (dig "warehouse" "data" "" .Values.settings) -}}
{{- fail "split needs settings.warehouse.data: s3://bucket/prefix that every role reaches" -}}
{{- end -}}
{{- if not (or (dig "warehouse" "catalog" "" .Values.settings) .Values.secrets) -}}
{{- fail "split needs a PostgreSQL catalog: settings.warehouse.catalog, or FALLOW_WAREHOUSE__CATALOG in a Secret named in secrets" -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int .Values.shards) 1) (not .Values.split) -}}
{{- fail "shards needs split: true, because several collectors share one PostgreSQL catalog" -}}
{{- end -}}
{{- if and .Values.ray.enabled (not .Values.split) -}}
{{- fail "ray.enabled needs split: true, because Ray's workers read a PostgreSQL catalog" -}}
{{- end -}}
{{- if and .Values.rights.executors (not .Values.rights.namespaces) -}}
{{- fail "rights.executors needs rights.namespaces: where may they act?" -}}
{{- end -}}
{{- if and .Values.rights.executors (not (include "fallow.acts" .)) -}}
{{- fail "rights.executors are granted, but settings.actions.enabled is not true: grant nothing that is not used" -}}
{{- end -}}
{{- end -}}

{{/* The way out to Ray's head: of our RayCluster its pods, of another its port. */}}
{{- define "fallow.rayEgress" -}}
{{- if .Values.ray.enabled -}}
{{- if .Values.ray.address -}}
- ports: [{protocol: TCP, port: {{ regexFind "[0-9]+$" .Values.ray.address }}}]
{{- else -}}
- to: [{podSelector: {matchLabels: {ray.io/cluster: {{ include "fallow.fullname" . }}-ray}}}]
  ports: [{protocol: TCP, port: 10001}]
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A pod of the Ray cluster: (values, container, resources). */}}
{{- define "fallow.rayPod" -}}
{{- $pod := index . 0 -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
containers:
- name: {{ index . 1 }}
  image: {{ $pod.image | quote }}
  imagePullPolicy: {{ $pod.pullPolicy }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
  {{- with $pod.secrets }}
  envFrom:
  {{- range . }}
  - secretRef: {name: {{ . }}}
  {{- end }}
  {{- end }}
  resources:
    {{- toYaml (index . 2) | nindent 4 }}
  volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: home, mountPath: /var/lib/fallow}
volumes:
- name: tmp
  emptyDir: {}
- name: home
  emptyDir: {}
{{- end -}}
