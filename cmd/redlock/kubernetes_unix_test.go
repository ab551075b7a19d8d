//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

const (
	manifest      = "../../deploy/kubernetes/sidecar.yaml"
	serversFolder = "../../deploy/kubernetes/servers"
)

// at returns a part of a document by its path of names and numbers, or nil.
func at(of any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch in := of.(type) {
		case map[string]any:
			of = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(in) {
				return nil
			}
			of = in[i]
		default:
			return nil
		}
	}
	return of
}

// text returns a part of a document as printed text; empty if it is missing.
func text(of any, path string) string {
	if found := at(of, path); found != nil {
		return fmt.Sprint(found)
	}
	return ""
}

func number(t *testing.T, of any, path string) int {
	t.Helper()
	n, err := strconv.Atoi(text(of, path))
	tr.NoError(t, err, path)
	return n
}

func list(of any, path string) []any {
	all, _ := at(of, path).([]any)
	return all
}

// A table maps the paths of a document to the required values. The documents explain the reasons.
type table map[string]string

func (want table) compare(t *testing.T, of any) {
	t.Helper()
	for path, value := range want {
		assert.Equal(t, value, text(of, path), path)
	}
}

// fields lists all fields in the documents, so that a mistyped one is noticed.
var fields = strings.Fields(`accessModes activeDeadlineSeconds affinity allowPrivilegeEscalation apiVersion args
	automountServiceAccountToken backoffLimit capabilities clusterIP command concurrencyPolicy configMap configMapGenerator
	containerPort containers defaultMode disableNameSuffixHash drop emptyDir enableServiceLinks env exec failedJobsHistoryLimit
	failureThreshold fieldPath fieldRef files from fsGroup generatorOptions httpGet image ingress initContainers jobTemplate key
	kind labelSelector labels limits literals livenessProbe matchLabels maxUnavailable metadata mountPath name namespace path
	periodSeconds podAffinityTerm podAntiAffinity podManagementPolicy podSelector policyTypes port ports
	preferredDuringSchedulingIgnoredDuringExecution projected protocol publishNotReadyAddresses readOnly readOnlyRootFilesystem
	readinessProbe replicas requests requiredDuringSchedulingIgnoredDuringExecution resources restartPolicy runAsNonRoot
	runAsUser schedule seccompProfile secret secretGenerator secretKeyRef securityContext selector serviceName sources spec
	startingDeadlineSeconds startupProbe successThreshold successfulJobsHistoryLimit targetPort tcpSocket template
	terminationGracePeriodSeconds timeoutSeconds topologyKey type updateStrategy value valueFrom volumeClaimTemplates
	volumeMounts volumes weight app medium sizeLimit cpu memory storage redlock-client
	annotations prometheus.io/scrape prometheus.io/port`)

// manifests returns the manifests of a file by kind and name, without kubectl.
func manifests(t *testing.T, file string) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(file)
	tr.NoError(t, err)
	all := map[string]any{}
	for from := yaml.NewDecoder(bytes.NewReader(raw)); ; {
		var d any
		if err := from.Decode(&d); errors.Is(err, io.EOF) {
			return all
		} else {
			tr.NoError(t, err, file)
		}
		known(t, d)
		all[strings.TrimSpace(text(d, "kind")+" "+text(d, "metadata.name"))] = d
	}
}

func known(t *testing.T, d any) {
	t.Helper()
	switch d := d.(type) {
	case map[string]any:
		for name, part := range d {
			assert.Contains(t, fields, name)
			known(t, part)
		}
	case []any:
		for _, part := range d {
			known(t, part)
		}
	}
}

// confined checks that a pod has no needless rights, and has only the required access to the
// machine.
func confined(t *testing.T, pod any) {
	t.Helper()
	table{"automountServiceAccountToken": "false", "securityContext.runAsNonRoot": "true", "securityContext.seccompProfile.type": "RuntimeDefault"}.compare(t, pod)
	assert.Positive(t, number(t, pod, "securityContext.runAsUser"))
	for _, c := range slices.Concat(list(pod, "initContainers"), list(pod, "containers")) {
		table{
			"securityContext.readOnlyRootFilesystem": "true", "securityContext.allowPrivilegeEscalation": "false", "securityContext.capabilities.drop": "[ALL]",
		}.compare(t, c)
		for _, resource := range []string{"requests.cpu", "requests.memory", "limits.memory"} {
			assert.NotEmpty(t, text(c, "resources."+resource), resource)
		}
	}
}

// theNodes are from a Secret, because the URLs have passwords.
var theNodes = table{"env.0.name": "REDLOCK_NODES", "env.0.valueFrom.secretKeyRef": "map[key:nodes name:redlock]"}

// sidecar returns the Deployment of the manifest.
func sidecar(t *testing.T) any { return manifests(t, manifest)["Deployment billing"] }

// TestManifestIsConsistent: the manifest is consistent with itself and with redlock serve.
func TestManifestIsConsistent(t *testing.T) {
	t.Parallel()
	all := manifests(t, manifest)
	tr.Len(t, all, 3)
	d := all["Deployment billing"]
	pod := at(d, "spec.template.spec")
	c, program := at(pod, "initContainers.0"), at(pod, "containers.0")
	var args []string
	for _, arg := range list(c, "args") {
		args = append(args, fmt.Sprint(arg))
	}
	tr.Equal(t, "serve", args[0])
	command := newServe()
	tr.NoError(t, command.ParseFlags(args[1:]))
	flag := func(name string) string { return command.Flags().Lookup(name).Value.String() }
	grace, err := time.ParseDuration(flag("stop-within"))
	tr.NoError(t, err)
	socket, _ := strings.CutPrefix(flag("listen"), "unix:")

	assert.Equal(t, ":"+text(c, "ports.0.containerPort"), flag("probes"))
	assert.Equal(t, map[string]any{"prometheus.io/scrape": "true", "prometheus.io/port": text(c, "ports.0.containerPort")}, at(d, "spec.template.metadata.annotations"))
	assert.Equal(t, "0660", flag("socket-mode"), "the program has another user")
	assert.Equal(t, "$("+text(c, "env.1.name")+")", flag("candidate"))
	assert.GreaterOrEqual(t, time.Duration(number(t, pod, "terminationGracePeriodSeconds"))*time.Second, grace+10*time.Second, "redlock ends behind the program")
	confined(t, pod)
	theNodes.compare(t, c)
	for probe, at := range map[string]string{"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"} {
		table{probe + ".httpGet.path": at, probe + ".httpGet.port": text(c, "ports.0.name")}.compare(t, c)
	}
	for _, each := range []any{c, program} {
		table{"volumeMounts.0": "map[mountPath:" + path.Dir(socket) + " name:" + text(pod, "volumes.0.name") + "]"}.compare(t, each)
	}
	assert.Equal(t, socket, text(program, "env.0.value"))
	table{ // a headless Service maps no ports
		"spec.clusterIP": "None", "spec.publishNotReadyAddresses": "true",
		"spec.ports.0.targetPort": text(program, "ports.0.name"), "spec.ports.0.port": text(program, "ports.0.containerPort"),
		"spec.ports.1.targetPort": text(c, "ports.0.name"), "spec.ports.1.port": text(c, "ports.0.containerPort"),
	}.compare(t, all["Service billing-candidates"])
}

// A serverDocuments has the documents in the folder for servers.
type serverDocuments struct {
	files                                        map[string]string
	kustomization                                any
	set, service, budget, policy, doctor, client any // client is the container of doctor
}

func readServers(t *testing.T) (s serverDocuments) {
	t.Helper()
	s.files = map[string]string{}
	entries, err := os.ReadDir(serversFolder)
	tr.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(serversFolder, e.Name()))
		tr.NoError(t, err)
		s.files[e.Name()] = string(text)
	}
	s.kustomization = manifests(t, filepath.Join(serversFolder, "kustomization.yaml"))["Kustomization"]
	all := manifests(t, filepath.Join(serversFolder, "servers.yaml"))
	tr.Len(t, all, 4)
	s.set, s.service = all["StatefulSet redlock-server"], all["Service redlock-server"]
	s.budget, s.policy = all["PodDisruptionBudget redlock-server"], all["NetworkPolicy redlock-server"]
	s.doctor = at(manifests(t, filepath.Join(serversFolder, "doctor.yaml"))["CronJob redlock-doctor"], "spec")
	s.client = at(s.doctor, "jobTemplate.spec.template.spec.containers.0")
	return s
}

// setting returns the value of a setting of redis.conf.
func (s *serverDocuments) setting(name string) string {
	for line := range strings.Lines(s.files["redis.conf"]) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			return value
		}
	}
	return ""
}

// TestServerManifestsAreConsistent: they match each other and the sidecar.
func TestServerManifestsAreConsistent(t *testing.T) {
	t.Parallel()
	s := readServers(t)
	const labels = "map[app:redlock-server]"
	replicas, pod := number(t, s.set, "spec.replicas"), at(s.set, "spec.template.spec")
	table{
		"selector.matchLabels": labels, "template.metadata.labels": labels, "serviceName": text(s.service, "metadata.name"), "updateStrategy.type": "OnDelete",
	}.compare(t, at(s.set, "spec"))
	const machine = "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.0."
	table{machine + "topologyKey": "kubernetes.io/hostname", machine + "labelSelector.matchLabels": labels}.compare(t, pod)
	confined(t, pod)
	confined(t, at(s.doctor, "jobTemplate.spec.template.spec"))
	table{"spec.selector.matchLabels": labels, "spec.maxUnavailable": "1"}.compare(t, s.budget)

	c, port := at(pod, "containers.0"), s.setting("port")
	table{
		"command": "[redis-server " + path.Dir(s.setting("aclfile")) + "/redis.conf]", "ports.0.containerPort": port,
		"volumeMounts.0.mountPath": path.Dir(s.setting("aclfile")), "volumeMounts.1.mountPath": s.setting("dir"),
	}.compare(t, c)
	table{"spec.selector": labels, "spec.clusterIP": "None", "spec.publishNotReadyAddresses": "true", "spec.ports.0.port": port}.compare(t, s.service)
	assert.NotRegexp(t, `(?mi)^(replicaof|slaveof|cluster-enabled|sentinel)\b`, s.files["redis.conf"], "the servers are independent")
	var memory, limit int
	fmt.Sscanf(s.setting("maxmemory"), "%dmb", &memory)
	fmt.Sscanf(text(c, "resources.limits.memory"), "%dMi", &limit)
	assert.True(t, memory > 0 && limit >= 2*memory, "for the child that rewrites the file")

	for _, template := range []any{at(s.doctor, "jobTemplate.spec.template"), at(sidecar(t), "spec.template")} {
		assert.Equal(t, text(s.policy, "spec.ingress.0.from.0.podSelector.matchLabels.redlock-client"), text(template, "metadata.labels.redlock-client"), "is let in")
	}
	theNodes.compare(t, s.client)
	table{"args": "[doctor --accept=transport]", "env.1.name": "REDLOCK_MAX_TTL"}.compare(t, s.client)
	longest, err := time.ParseDuration(text(s.client, "env.1.value"))
	tr.NoError(t, err)
	assert.Contains(t, text(sidecar(t), "spec.template.spec.initContainers.0.args"), " --ttl="+longest.String()+" ")
	after := time.Duration((number(t, c, "readinessProbe.successThreshold")-1)*number(t, c, "readinessProbe.periodSeconds")) * time.Second
	assert.GreaterOrEqual(t, after, longest+longest/5, "a server that has no vote yet is ready, and a drain would take the next")

	var nodes []string
	_, acl, _ := strings.Cut(s.files["users.acl"], "\nuser locks on >")
	password, _, _ := strings.Cut(acl, " ")
	for i := range replicas {
		nodes = append(nodes, fmt.Sprintf("redis://locks:%s@%s-%d.%s.%s.svc.cluster.local:%s", password,
			text(s.set, "metadata.name"), i, text(s.service, "metadata.name"), text(s.kustomization, "namespace"), port))
	}
	table{"secretGenerator.1.literals.0": "nodes=" + strings.Join(nodes, ",")}.compare(t, s.kustomization)
}

// TestServersHaveTheSettingsOfThePage: the servers have the settings of the page for operators, and
// the other settings that a pod needs.
func TestServersHaveTheSettingsOfThePage(t *testing.T) {
	t.Parallel()
	files := readServers(t).files
	settings := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				all = append(all, line)
			}
		}
		return all
	}
	blocks := map[string][]string{}
	for _, d := range documents.Documents(t) {
		for _, code := range d.Codes() {
			if _, seen := blocks[code.Language]; d.Path == "docs/OPERATING.md" && !seen {
				blocks[code.Language] = settings(code.Text)
			}
		}
	}
	conf, acl := blocks["conf"], blocks["acl"]
	tr.NotEmpty(t, conf)
	tr.Equal(t, "bind 10.0.0.1", conf[0])
	conf[0] = "bind * -::*"
	conf = slices.Insert(conf, len(conf)-1, "dir /data")
	assert.Equal(t, conf, settings(files["redis.conf"]))
	assert.Equal(t, append(acl, "user probe on nopass resetchannels -@all +ping"), settings(files["users.acl"]))
}

// TestServersOfTheManifestStart: redis-server accepts the configuration and answers its probe.
// redlock doctor, run as in the Job, finds nothing.
func TestServersOfTheManifestStart(t *testing.T) {
	t.Parallel()
	testenv.NeedRedis(t)
	r := readServers(t)
	var urls []string
	for range 3 {
		urls = append(urls, startConfigured(t))
	}
	locked(t, urls)
	args := []string{text(r.client, "args.0"), text(r.client, "args.1"), "--max-ttl", lockedTTL.String(), "--dial-timeout", "20s", "--node-timeout", "10s"}
	for _, u := range urls {
		args = append(args, "--node", u)
	}
	code, out, errs := redlockCommand(t, args...)
	assert.Zero(t, code, out+errs)
	assert.Contains(t, out, "3 of 3 servers answered, 2 are needed: fine")

	testenv.NeedProgram(t, "redis-cli")
	probe := list(r.set, "spec.template.spec.containers.0.readinessProbe.exec.command")
	ask := func(socket, user string) error {
		line := strings.NewReplacer("redis-cli ", "redis-cli -s "+socket+" ", "--user probe", "--user "+user).Replace(fmt.Sprint(probe[2]))
		return exec.CommandContext(t.Context(), "sh", "-c", line).Run()
	}
	_, socket, _ := strings.Cut(urls[0], "@")
	assert.NoError(t, ask(socket, "probe"))
	assert.Error(t, ask(socket, "nobody"), "an answer that is no PONG")
	assert.Error(t, ask("/nowhere", "probe"), "no server")
}

// startConfigured starts a server with the configuration of the folder, and returns its URL for
// clients.
func startConfigured(t *testing.T) (address string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range readServers(t).files {
		text = strings.NewReplacer("dir /data", "dir "+folder, "/etc/redis", folder).Replace(text)
		tr.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: 1, Arguments: []string{filepath.Join(folder, "redis.conf"), "--port", "0"}})
	tr.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return strings.Replace(f.URLs()[0], "unix://", "unix://locks:CHANGE-ME@", 1)
}

var (
	inContainer = regexp.MustCompile(`kubectl exec deploy/(\S+) -c (\S+) -- (\S+) ([^;]+)`)
	ofFile      = regexp.MustCompile(`(?:--from-file=| -f | -k )([^\s-]\S+)`)
)

// TestKubernetesPageIsTrue: the commands of docs/KUBERNETES.md name existing objects, the requests
// of its program get the documented answers, and the alerts of contrib/prometheus become a
// PrometheusRule.
func TestKubernetesPageIsTrue(t *testing.T) {
	t.Parallel()
	testenv.NeedProgram(t, "curl")
	a := campaign(t, startFleet(t, fleet.Embedded, 3), "10.1.2.3")
	eventually(t, "it leads", func() bool { return a.probe("/leader") == http.StatusOK })
	s, pod, root := readServers(t), at(sidecar(t), "spec.template.spec"), documents.Root(t)
	containers := table{"billing/redlock": text(pod, "initContainers.0.name"), "billing/billing": text(pod, "containers.0.name")}
	last := fmt.Sprintf("redlock-server-%d", number(t, s.set, "spec.replicas")-1)
	ran := map[string]int{}
	for _, c := range documents.Commands(t) {
		if c.Document != "docs/KUBERNETES.md" || !c.Whole || !strings.Contains(c.Text, "kubectl ") {
			continue
		}
		if file := ofFile.FindStringSubmatch(c.Text); file != nil {
			ran["file"]++
			_, err := os.Stat(filepath.Join(root, file[1]))
			assert.NoError(t, err, c.Place())
		}
		in := inContainer.FindStringSubmatch(c.Text)
		rule, isRule := strings.CutSuffix(c.Text, " | kubectl apply -f -")
		switch {
		case isRule:
			ran["rule"]++
			isPrometheusRule(t, root, rule)
		case in == nil:
			assert.Regexp(t, ` (-f|-k|(secret|configmap) \S+|pods --selector app=redlock-server|pod `+last+`) ?`, c.Text, c.Place())
		case in[3] == "curl":
			ran["curl"]++
			code, said := inShell(t, t.TempDir(), "curl --fail "+strings.ReplaceAll(in[4], "/run/redlock/redlock.sock", strings.TrimPrefix(a.address, "unix:")))
			assert.Zero(t, code, c.Place())
			assert.Regexp(t, `^\{"leader":true,"id":"10\.1\.2\.3","token":\d+,"valid_for_ms":\d+\}\n$`, said, c.Place())
		default:
			ran["redlock"]++
			assert.Equal(t, "/redlock", in[3], c.Place())
			assert.NoError(t, parses(strings.Fields(in[4])), c.Place())
		}
		if in != nil {
			assert.Equal(t, in[2], containers[in[1]+"/"+in[2]], c.Place())
		}
	}
	assert.Equal(t, map[string]int{"curl": 2, "redlock": 2, "file": 3, "rule": 1}, ran)
}

// isPrometheusRule runs a command that makes a PrometheusRule of the alerts. contrib/prometheus
// checks that the metrics of the alerts exist.
func isPrometheusRule(t *testing.T, root, command string) {
	t.Helper()
	code, said := inShell(t, root, command)
	tr.Zero(t, code, said)
	var made, of any
	tr.NoError(t, yaml.Unmarshal([]byte(said), &made))
	alerts, err := os.ReadFile(filepath.Join(root, "contrib", "prometheus", "alerts.yaml"))
	tr.NoError(t, err)
	tr.NoError(t, yaml.Unmarshal(alerts, &of))
	table{"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata.name": "redlock"}.compare(t, made)
	assert.NotEmpty(t, list(of, "groups"))
	assert.Equal(t, list(of, "groups"), list(made, "spec.groups"))
}
