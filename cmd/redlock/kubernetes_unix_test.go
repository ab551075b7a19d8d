//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/internal/readme"
	"github.com/redquorum/redquorum/internal/serve"
	"github.com/redquorum/redquorum/redlocktest"
)

const (
	manifest      = "../../deploy/kubernetes/sidecar.yaml"
	serversFolder = "../../deploy/kubernetes/servers"
)

// at returns a part of a document, by the names and numbers on the way to it, or nil.
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

// text returns a part of a document as it is printed; what is not there is empty.
func text(of any, path string) string {
	if found := at(of, path); found != nil {
		return fmt.Sprint(found)
	}
	return ""
}

func number(of any, path string) int {
	n, _ := strconv.Atoi(text(of, path))
	return n
}

func list(of any, path string) []any {
	all, _ := at(of, path).([]any)
	return all
}

func containers(pod any) []any {
	return slices.Concat(list(pod, "initContainers"), list(pod, "containers"))
}

// fields are all that the documents have. One that is mistyped is none of them.
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
	volumeMounts volumes weight app medium sizeLimit cpu memory storage redlock-client`)

// An inspector collects what is wrong with manifests. There is no kubectl, so it looks by itself.
type inspector struct {
	wrong  []string
	probes func(path string) (status int) // of redlock serve
}

func (in *inspector) check(good bool, format string, args ...any) {
	if !good {
		in.wrong = append(in.wrong, fmt.Sprintf(format, args...))
	}
}

// wants checks parts of a document. Each is its path, what it must be (* is anything), and what is wrong
// otherwise.
func (in *inspector) wants(of any, table ...string) {
	for w := range slices.Chunk(table, 3) {
		has := text(of, w[0])
		in.check(has == w[1] || w[1] == "*" && has != "" && has != "0", "%s", w[2])
	}
}

// documents returns the documents of a file by their kinds.
func (in *inspector) documents(file string) map[string][]any {
	all := map[string][]any{}
	for from := yaml.NewDecoder(strings.NewReader(file)); ; {
		var d any
		if err := from.Decode(&d); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			in.check(false, "%v", err)
			return all
		}
		in.knows(d)
		kind := text(d, "apiVersion") + " " + text(d, "kind")
		all[kind] = append(all[kind], d)
	}
}

func (in *inspector) knows(d any) {
	switch d := d.(type) {
	case map[string]any:
		for name, part := range d {
			in.check(slices.Contains(fields, name), "there is no field %s", name)
			in.knows(part)
		}
	case []any:
		for _, part := range d {
			in.knows(part)
		}
	}
}

// confined checks that a pod has no rights that it does not need, and what it is to have of the machine.
func (in *inspector) confined(pod any) {
	const rights = "the pod has rights that it does not need"
	in.wants(pod, "automountServiceAccountToken", "false", "the pod gets a token of the API", "securityContext.runAsNonRoot", "true", rights,
		"securityContext.runAsUser", "*", rights, "securityContext.seccompProfile.type", "RuntimeDefault", rights)
	for _, c := range containers(pod) {
		const resources = "the resources are not complete"
		in.wants(c, "securityContext.readOnlyRootFilesystem", "true", rights, "securityContext.allowPrivilegeEscalation", "false", rights,
			"securityContext.capabilities.drop", "[ALL]", rights, "resources.requests.cpu", "*", resources,
			"resources.requests.memory", "*", resources, "resources.limits.memory", "*", resources)
	}
}

// environment checks that what a container gets from its environment is there.
func (in *inspector) environment(c any) {
	have := map[string]bool{}
	for _, e := range list(c, "env") {
		if have[text(e, "name")] = true; text(e, "name") == "REDLOCK_NODES" {
			const secret = "the URLs have passwords, and are from a Secret"
			in.wants(e, "valueFrom.secretKeyRef.name", "*", secret, "valueFrom.secretKeyRef.key", "*", secret)
		}
	}
	in.check(have["REDLOCK_NODES"], "redlock is not told of its servers")
	for _, arg := range list(c, "args") {
		if _, name, ok := strings.Cut(fmt.Sprint(arg), "$("); ok {
			name, _, _ = strings.Cut(name, ")")
			in.check(have[name], "%s: there is no variable %s", arg, name)
		}
	}
}

func (in *inspector) service(s, pod any, app string) {
	name, isHeadless := text(s, "metadata.name"), text(s, "spec.clusterIP") == "None"
	for _, to := range list(s, "spec.ports") {
		found := false
		for _, c := range containers(pod) {
			for _, has := range list(c, "ports") {
				if text(has, "name") == text(to, "targetPort") {
					found = true
					in.check(!isHeadless || text(has, "containerPort") == text(to, "port"), "%s: a headless Service maps no ports", name)
				}
			}
		}
		in.check(found, "%s: no container has the port %s", name, text(to, "targetPort"))
	}
	in.check(isHeadless == (text(s, "spec.publishNotReadyAddresses") == "true"), "%s: balancers that check pods by themselves want all", name)
	in.check(text(s, "spec.selector") == "map[app:"+app+"]", "%s selects other pods", name)
}

// deployment checks the manifest of a program with its sidecar, and returns their Deployment.
func (in *inspector) deployment(file string) any {
	all := in.documents(file)
	if in.check(len(all) == 2 && len(all["apps/v1 Deployment"]) == 1 && len(all["v1 Service"]) == 2, "a Deployment and two Services are wanted"); len(in.wrong) > 0 {
		return nil
	}
	d := all["apps/v1 Deployment"][0]
	pod, app := at(d, "spec.template.spec"), text(d, "spec.template.metadata.labels.app")
	in.wants(d, "spec.replicas", "3", "three replicas are wanted", "spec.selector.matchLabels.app", app, "the Deployment selects other pods")
	for _, s := range all["v1 Service"] {
		in.service(s, pod, app)
	}
	in.confined(pod)
	if in.check(len(list(pod, "initContainers")) == 1 && len(list(pod, "containers")) == 1, "a sidecar and a program are wanted"); len(in.wrong) > 0 {
		return d
	}
	in.sidecar(pod, at(pod, "initContainers.0"), at(pod, "containers.0"))
	for _, c := range containers(pod) {
		in.check(strings.HasPrefix(text(c, "image"), "registry.example/") && strings.Contains(text(c, "image"), ":"), "the image %s is no placeholder", text(c, "image"))
		for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
			at, port := text(c, probe+".httpGet.path"), text(c, probe+".httpGet.port")
			in.check(at == "" || text(c, "ports.0.name") == port, "a probe is of the port %q, which it has not", port)
			in.check(at == "" || in.probes(at) != 404, "redlock serve answers no probe %s", at)
		}
		for _, m := range list(c, "volumeMounts") {
			in.wants(pod, "volumes.0.name", text(m, "name"), "it mounts another volume", "volumes.0.emptyDir.medium", "Memory", "the socket is on a disk")
		}
	}
	return d
}

// sidecar checks redlock serve and what the program shares with it.
func (in *inspector) sidecar(pod, c, program any) {
	in.wants(c, "restartPolicy", "Always", "without restartPolicy the program waits for the end of redlock",
		"args.0", "serve", "the sidecar is redlock serve", "livenessProbe.httpGet.path", "/healthz", "liveness is /healthz",
		"startupProbe.httpGet.path", "/healthz", "the program begins when redlock serves", "readinessProbe.httpGet.path", "*", "it is never ready")
	in.check(text(c, "readinessProbe.httpGet.path") != "/leader", "a rollout waits for pods to be ready, and of those that do not lead it would for ever")
	command := newServe()
	var args []string
	for _, arg := range list(c, "args")[1:] {
		args = append(args, fmt.Sprint(arg))
	}
	if err := command.ParseFlags(args); err != nil {
		in.check(false, "the arguments: %v", err)
		return
	}
	flag := func(name string) string { return command.Flags().Lookup(name).Value.String() }
	_, port, err := net.SplitHostPort(flag("probes"))
	in.check(err == nil && text(c, "ports.0.containerPort") == port, "--probes %s is not the port of the container", flag("probes"))
	socket, isUnix := strings.CutPrefix(flag("listen"), "unix:")
	in.check(isUnix, "the socket is for the pod alone")
	for _, each := range []any{c, program} {
		in.wants(each, "volumeMounts.0.mountPath", path.Dir(socket), "a container does not have the folder of the socket")
	}
	in.check(flag("socket-mode") == "0660" && number(pod, "securityContext.fsGroup") > 0, "the program's user cannot use the socket")
	in.wants(program, "env.0.value", socket, "the program is not told of the socket")
	grace, err := time.ParseDuration(flag("stop-within"))
	in.check(err == nil && time.Duration(number(pod, "terminationGracePeriodSeconds"))*time.Second >= grace+10*time.Second, "the pod is killed before redlock and the program have ended")
	in.check(flag("office") != "", "redlock campaigns for no office")
	in.environment(c)
}

// inspectManifest returns what is wrong with a manifest.
func inspectManifest(t *testing.T, text string) []string {
	servers := redlocktest.Start(t)
	server := serve.New(servers.Locker(), serve.Config{TTL: 10 * time.Second, Office: "billing", Candidate: "a"})
	defer server.Close(t.Context())
	handler := server.Probes()
	in := &inspector{probes: func(path string) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code
	}}
	in.deployment(text)
	return in.wrong
}

// TestTheManifestFitsTogether, and redlock serve.
func TestTheManifestFitsTogether(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(manifest)
	tr.NoError(t, err)
	assert.Empty(t, inspectManifest(t, string(text)))

	for _, c := range []struct{ from, to, says string }{
		{"restartPolicy: Always", "restartPolicy: Never", "waits for the end"},
		{"- serve\n", "- dance\n", "is redlock serve"},
		{"--office=billing", "--offices=billing", "unknown flag"},
		{"--ttl=10s", "--ttl=10", "--ttl"},
		{"--stop-within=10s", "--stop-within=25s", "is killed before"},
		{"--probes=:8081", "--probes=:8082", "is not the port"},
		{"path: /readyz", "path: /leader", "for ever"},
		{"path: /readyz", "path: /ready", "no probe /ready"},
		{"path: /readyz, port: probes", "path: /readyz, port: probe", "which it has not"},
		{"unix:/run/redlock/redlock.sock", "unix:/run/redlock.sock", "the folder of the socket"},
		{"value: /run/redlock/redlock.sock", "value: /run/redlock/s", "is not told of"},
		{"name: POD_IP\n", "name: POD\n", "no variable POD_IP"},
		{"secretKeyRef: {name: redlock, key: nodes}", "fieldRef: {fieldPath: x}", "from a Secret"},
		{"targetPort: probes", "targetPort: probe", "no container has the port"},
		{"readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "rights"},
		{"drop: [ALL]", "drop: [NET_RAW]", "rights"},
		{"runAsNonRoot: true", "runAsNonRoot: false", "rights"},
		{"matchLabels: {app: billing}", "matchLabels: {app: other}", "selects other pods"},
		{"selector: {app: billing}", "selector: {app: other}", "selects other pods"},
		{"replicas: 3", "replica: 3", "no field replica"},
	} {
		tr.Contains(t, string(text), c.from)
		assert.Contains(t, strings.Join(inspectManifest(t, strings.Replace(string(text), c.from, c.to, 1)), "\n"), c.says, c.to)
	}
}

// A rendered is what kubectl apply -k would send to the cluster.
type rendered struct {
	inspector
	files     map[string]string
	namespace string
	generated map[string]map[string]string // by kind and name, and key

	set, service, budget, policy, doctor any
}

// render reads the folder of a kustomization, whose files are given by their names.
func render(files map[string]string) *rendered {
	r := &rendered{files: files, generated: map[string]map[string]string{}}
	used := map[string]bool{"kustomization.yaml": true}
	use := func(name string) string {
		r.check(files[name] != "", "there is no file %s", name)
		used[name] = true
		return files[name]
	}
	k := r.documents(files["kustomization.yaml"])["kustomize.config.k8s.io/v1beta1 Kustomization"]
	if r.check(len(k) == 1, "kustomization.yaml is none"); len(r.wrong) > 0 {
		return r
	}
	r.wants(k[0], "generatorOptions.disableNameSuffixHash", "true", "the names of generated Secrets are not those that others refer to")
	r.namespace = text(k[0], "namespace")
	for _, kind := range []string{"configMap", "secret"} {
		for _, g := range list(k[0], kind+"Generator") {
			made := map[string]string{}
			for _, name := range list(g, "files") {
				made[fmt.Sprint(name)] = use(fmt.Sprint(name))
			}
			for _, literal := range list(g, "literals") {
				key, value, _ := strings.Cut(fmt.Sprint(literal), "=")
				made[key] = value
			}
			r.generated[kind+" "+text(g, "name")] = made
		}
	}
	into := map[string]*any{
		"apps/v1 StatefulSet": &r.set, "v1 Service": &r.service, "policy/v1 PodDisruptionBudget": &r.budget,
		"networking.k8s.io/v1 NetworkPolicy": &r.policy, "batch/v1 CronJob": &r.doctor,
	}
	for _, name := range list(k[0], "resources") {
		for kind, all := range r.documents(use(fmt.Sprint(name))) {
			if r.check(into[kind] != nil && *into[kind] == nil && len(all) == 1, "a %s is not expected, or not twice", kind); into[kind] != nil {
				*into[kind] = all[0]
			}
		}
	}
	for kind, found := range into {
		r.check(*found != nil, "there is no %s", kind)
	}
	for name := range files {
		r.check(used[name], "nothing uses the file %s", name)
	}
	return r
}

// inspect checks that what is rendered fits together, and fits the sidecar.
func (r *rendered) inspect(sidecar any) {
	if len(r.wrong) > 0 {
		return
	}
	pod, labels := at(r.set, "spec.template.spec"), text(r.set, "spec.template.metadata.labels")
	replicas := number(r.set, "spec.replicas")
	r.check(replicas >= 3 && replicas%2 == 1, "%d servers are not three or five", replicas)
	const anti = "template.spec.affinity.podAntiAffinity."
	const machine, zone = anti + "requiredDuringSchedulingIgnoredDuringExecution.0.", anti + "preferredDuringSchedulingIgnoredDuringExecution.0.podAffinityTerm."
	r.wants(at(r.set, "spec"), "updateStrategy.type", "OnDelete", "a change that is applied restarts servers by itself",
		"podManagementPolicy", "Parallel", "a server that is down keeps others from coming back",
		"selector.matchLabels", labels, "the StatefulSet selects other pods",
		machine+"topologyKey", "kubernetes.io/hostname", "two servers can be on one machine",
		zone+"topologyKey", "topology.kubernetes.io/zone", "two servers can be in one zone where there are three",
		machine+"labelSelector.matchLabels", labels, "the anti-affinity is with other pods",
		zone+"labelSelector.matchLabels", labels, "the anti-affinity is with other pods",
		"serviceName", text(r.service, "metadata.name"), "the pods have no addresses: the StatefulSet is of another Service")
	r.wants(r.budget, "spec.selector.matchLabels", labels, "the PodDisruptionBudget is of other pods",
		"spec.maxUnavailable", "1", "a drain may take two servers at once")
	r.wants(r.service, "spec.clusterIP", "None", "a Service with a cluster IP balances over the servers",
		"spec.publishNotReadyAddresses", "true", "a server in quarantine has no address, and its quarantine does not begin")
	r.inspector.service(r.service, pod, text(r.set, "spec.template.metadata.labels.app"))
	r.confined(pod)
	r.confined(at(r.doctor, "spec.jobTemplate.spec.template.spec"))
	r.configuration(pod, at(pod, "containers.0"))
	r.addresses(sidecar)
	r.network(sidecar)
	r.readiness(sidecar)
}

// setting returns the value of a setting of redis.conf.
func (r *rendered) setting(name string) string {
	for line := range strings.Lines(r.files["redis.conf"]) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			return value
		}
	}
	return ""
}

// configuration checks what the server is started with, and where it finds it.
func (r *rendered) configuration(pod, c any) {
	r.wants(c, "command", "[redis-server /etc/redis/redis.conf]", "the server is not started with its configuration",
		"ports.0.containerPort", r.setting("port"), "the port of redis.conf is another")
	r.wants(pod, "volumes.0.projected.defaultMode", fmt.Sprint(0440), "others on the machine may read the ACL", "securityContext.fsGroup", "*", "the server cannot write to its volume")
	mounted := map[string]string{}
	for _, m := range list(c, "volumeMounts") {
		mounted[text(m, "mountPath")] = text(m, "name")
	}
	found := map[string]bool{}
	for _, source := range list(pod, "volumes.0.projected.sources") {
		for _, kind := range []string{"configMap", "secret"} {
			for file := range r.generated[kind+" "+text(source, kind+".name")] {
				found[file] = true
			}
		}
	}
	r.check(mounted["/etc/redis"] == text(pod, "volumes.0.name") && found["redis.conf"], "redis.conf is not in the pod")
	r.check(found["users.acl"] && r.setting("aclfile") == "/etc/redis/users.acl", "the ACL is not in the pod, or not where redis.conf has it")
	r.check(mounted[r.setting("dir")] == text(r.set, "spec.volumeClaimTemplates.0.metadata.name"), "the data is on no volume of its own")
	for _, word := range []string{"replicaof", "slaveof", "cluster-enabled", "sentinel"} {
		r.check(!strings.Contains(strings.ToLower(r.files["redis.conf"]+text(c, "command")), word+" "), "%s: the servers are not independent", word)
	}
	limit, _ := strconv.Atoi(strings.TrimSuffix(text(c, "resources.limits.memory"), "Mi"))
	memory, _ := strconv.Atoi(strings.TrimSuffix(r.setting("maxmemory"), "mb"))
	r.check(memory > 0 && limit >= 2*memory, "a child that rewrites the file has no memory")
}

// addresses checks that clients have one address for each pod, and for each its own.
func (r *rendered) addresses(sidecar any) {
	var want []string
	for i := range number(r.set, "spec.replicas") {
		want = append(want, fmt.Sprintf("%s-%d.%s.%s.svc.cluster.local:%s", text(r.set, "metadata.name"), i, text(r.service, "metadata.name"), r.namespace, r.setting("port")))
	}
	for _, c := range []any{at(r.doctor, "spec.jobTemplate.spec.template.spec.containers.0"), at(sidecar, "spec.template.spec.initContainers.0")} {
		r.environment(c)
		var have []string
		ref := at(c, "env.0.valueFrom.secretKeyRef")
		for each := range strings.SplitSeq(r.generated["secret "+text(ref, "name")][text(ref, "key")], ",") {
			u, err := url.Parse(each)
			if err != nil || u.User == nil {
				r.check(false, "the Secret %s has no key %s with URLs", text(ref, "name"), text(ref, "key"))
				return
			}
			have = append(have, u.Host)
			password, _ := u.User.Password()
			r.check(strings.Contains(r.files["users.acl"], "\nuser "+u.User.Username()+" on >"+password+" "), "the user of an address is not in users.acl")
		}
		r.check(slices.Equal(want, have), "the clients have %v, and the pods are %v", have, want)
	}
}

// network checks who may reach whom.
func (r *rendered) network(sidecar any) {
	let, _ := at(r.policy, "spec.ingress.0.from.0.podSelector.matchLabels").(map[string]any)
	r.wants(at(r.policy, "spec"), "podSelector.matchLabels", text(r.set, "spec.template.metadata.labels"), "the NetworkPolicy is of other pods",
		"policyTypes", "[Ingress Egress]", "servers can reach each other", "egress", "", "servers can reach each other",
		"ingress.0.ports.0.port", text(r.set, "spec.template.spec.containers.0.ports.0.name"), "the NetworkPolicy opens another port")
	r.check(len(let) > 0, "all pods may connect")
	for of, template := range map[string]any{"redlock doctor": at(r.doctor, "spec.jobTemplate.spec.template"), "the sidecar": at(sidecar, "spec.template")} {
		for key, value := range let {
			r.wants(template, "metadata.labels."+key, fmt.Sprint(value), of+" is not let in")
		}
	}
}

// readiness checks that a server is ready no sooner than it has its vote again, and the doctor's Job.
func (r *rendered) readiness(sidecar any) {
	c, job := at(r.set, "spec.template.spec.containers.0"), at(r.doctor, "spec.jobTemplate.spec")
	r.wants(c, "livenessProbe.tcpSocket.port", text(c, "ports.0.name"), "liveness is the port, and no command", "readinessProbe.exec.command.0", "sh", "readiness is a command")
	r.wants(job, "template.spec.containers.0.args", "[doctor]", "the Job does not run redlock doctor",
		"template.spec.restartPolicy", "Never", "a warning is tried again until it is gone", "backoffLimit", "0", "a warning is tried again until it is gone",
		"activeDeadlineSeconds", "*", "the Jobs of redlock doctor pile up")
	r.wants(r.doctor, "spec.concurrencyPolicy", "Forbid", "the Jobs of redlock doctor pile up")
	r.wants(job, "template.spec.containers.0.env.1.name", "REDLOCK_MAX_TTL", "redlock doctor is not told the longest TTL")
	longest, _ := time.ParseDuration(text(job, "template.spec.containers.0.env.1.value"))
	for _, arg := range list(sidecar, "spec.template.spec.initContainers.0.args") {
		if value, ok := strings.CutPrefix(fmt.Sprint(arg), "--ttl="); ok {
			ttl, err := time.ParseDuration(value)
			r.check(err == nil && ttl <= longest, "the sidecar's TTL of %s is longer than REDLOCK_MAX_TTL", value)
		}
	}
	after := time.Duration((number(c, "readinessProbe.successThreshold")-1)*number(c, "readinessProbe.periodSeconds")) * time.Second
	r.check(after >= longest+longest/5, "a server is ready after %v, and has no vote for %v: a drain would take the next", after, longest)
}

func readServers(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(serversFolder)
	tr.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(serversFolder, e.Name()))
		tr.NoError(t, err)
		files[e.Name()] = string(text)
	}
	return files
}

// sidecarOf returns the Deployment of the manifest.
func sidecarOf(t *testing.T) any {
	t.Helper()
	text, err := os.ReadFile(manifest)
	tr.NoError(t, err)
	return (&inspector{}).documents(string(text))["apps/v1 Deployment"][0]
}

// TestTheServersFitTogether, and the sidecar.
func TestTheServersFitTogether(t *testing.T) {
	t.Parallel()
	sidecar := sidecarOf(t)
	inspect := func(files map[string]string) []string {
		r := render(files)
		r.inspect(sidecar)
		return r.wrong
	}
	files := readServers(t)
	assert.Empty(t, inspect(files))

	five := maps.Clone(files)
	five["servers.yaml"] = strings.Replace(five["servers.yaml"], "replicas: 3", "replicas: 5", 1)
	last := "redis://locks:CHANGE-ME@redlock-server-2.redlock-server.default.svc.cluster.local:6379"
	more := last + "," + strings.Replace(last, "-2.", "-3.", 1) + "," + strings.Replace(last, "-2.", "-4.", 1)
	five["kustomization.yaml"] = strings.Replace(five["kustomization.yaml"], last, more, 1)
	assert.Empty(t, inspect(five))

	for _, c := range []struct{ file, from, to, says string }{
		{"kustomization.yaml", "  - doctor.yaml\n", "", "there is no batch/v1 CronJob"},
		{"kustomization.yaml", "  - doctor.yaml", "  - doctors.yaml", "there is no file doctors.yaml"},
		{"kustomization.yaml", "[redis.conf]", "[redis.config]", "there is no file redis.config"},
		{"kustomization.yaml", "Hash: true", "Hash: false", "that others refer to"},
		{"kustomization.yaml", "namespace: default", "namespace: locks", "the clients have"},
		{"kustomization.yaml", ",redis://locks:CHANGE-ME@redlock-server-2", ",redis://locks:CHANGE-ME@redlock-server-1", "the clients have"},
		{"kustomization.yaml", "redlock-server-0.redlock-server", "redlock-server", "the clients have"},
		{"kustomization.yaml", "nodes=", "node=", "no key nodes"},
		{"kustomization.yaml", "redis://locks:CHANGE-ME@", "redis://locks:other@", "is not in users.acl"},
		{"kustomization.yaml", "- name: redlock #", "- name: redlocks #", "no key nodes"},
		{"users.acl", "user locks on >CHANGE-ME ", "user lock on >CHANGE-ME ", "is not in users.acl"},
		{"redis.conf", "port 6379", "port 6380", "another"},
		{"redis.conf", "port 6379", "port 6379\nreplicaof 10.0.0.1 6379", "not independent"},
		{"redis.conf", "maxmemory 256mb", "maxmemory 512mb", "has no memory"},
		{"redis.conf", "dir /data", "dir /tmp", "on no volume"},
		{"redis.conf", "aclfile /etc/redis/users.acl", "aclfile /etc/users.acl", "the ACL"},
		{"servers.yaml", "replicas: 3", "replicas: 5", "the clients have"},
		{"servers.yaml", "replicas: 3", "replicas: 4", "three or five"},
		{"servers.yaml", "replicas: 3", "replica: 3", "no field replica"},
		{"servers.yaml", "{type: OnDelete}", "{type: RollingUpdate}", "by itself"},
		{"servers.yaml", "podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady", "from coming back"},
		{"servers.yaml", "serviceName: redlock-server", "serviceName: redlock", "of another Service"},
		{"servers.yaml", "topologyKey: kubernetes.io/hostname", "topologyKey: topology.kubernetes.io/zone", "on one machine"},
		{"servers.yaml", "              labelSelector:\n                matchLabels: {app: redlock-server}", "              labelSelector:\n                matchLabels: {app: redis}", "anti-affinity"},
		{"servers.yaml", "maxUnavailable: 1", "maxUnavailable: 2", "two servers at once"},
		{"servers.yaml", "for a failure\n  selector:\n    matchLabels: {app: redlock-server}", "\n  selector:\n    matchLabels: {app: redis}", "Budget is of other pods"},
		{"servers.yaml", "clusterIP: None\n  publishNotReadyAddresses: true", "publishNotReadyAddresses: false", "balances over the servers"},
		{"servers.yaml", "publishNotReadyAddresses: true", "publishNotReadyAddresses: false", "does not begin"},
		{"servers.yaml", "port: 6379, targetPort", "port: 6380, targetPort", "maps no ports"},
		{"servers.yaml", "[Ingress, Egress]", "[Ingress]", "reach each other"},
		{"servers.yaml", `redlock-client: "true"`, `redlock-client: "yes"`, "is not let in"},
		{"servers.yaml", "protocol: TCP, port: redis", "protocol: TCP, port: http", "opens another port"},
		{"servers.yaml", "successThreshold: 4", "successThreshold: 1", "a drain would take the next"},
		{"servers.yaml", "tcpSocket: {port: redis}", "exec: {command: [redis-cli, ping]}", "no command"},
		{"servers.yaml", "secret: {name: redlock-server}", "secret: {name: redlock}", "the ACL is not in the pod"},
		{"servers.yaml", "defaultMode: 0440", "defaultMode: 0444", "others on the machine"},
		{"servers.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "rights"},
		{"servers.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "rights"},
		{"servers.yaml", "kind: PodDisruptionBudget", "kind: Deployment", "is not expected"},
		{"doctor.yaml", "args: [doctor]", "args: [physician]", "does not run redlock doctor"},
		{"doctor.yaml", "value: 10s", "value: 1s", "is longer than"},
		{"doctor.yaml", "value: 10s", "value: 60s", "a drain would take the next"},
		{"doctor.yaml", "backoffLimit: 0", "backoffLimit: 6", "until it is gone"},
		{"doctor.yaml", `, redlock-client: "true"`, "", "redlock doctor is not let in"},
	} {
		tr.Contains(t, files[c.file], c.from)
		broken := maps.Clone(files)
		broken[c.file] = strings.Replace(broken[c.file], c.from, c.to, 1)
		assert.Contains(t, strings.Join(inspect(broken), "\n"), c.says, "%s: %s", c.file, c.to)
	}
}

// TestTheServersHaveTheSettingsOfThePage for operators, and what a pod needs beside them.
func TestTheServersHaveTheSettingsOfThePage(t *testing.T) {
	t.Parallel()
	files := readServers(t)
	settings := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				all = append(all, line)
			}
		}
		return all
	}
	blocks := map[string][]string{}
	for _, d := range readme.Documents(t) {
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

// TestTheServersStart: redis-server takes the configuration, its probe is answered, and redlock doctor, as
// the Job runs it, finds nothing.
func TestTheServersStart(t *testing.T) {
	t.Parallel()
	need.Redis(t)
	r := render(readServers(t))
	tr.Empty(t, r.wrong)
	var urls []string
	for range 3 {
		urls = append(urls, startConfigured(t))
	}
	locked(t, urls)
	args := []string{text(r.doctor, "spec.jobTemplate.spec.template.spec.containers.0.args.0"), "--max-ttl", lockedTTL.String(), "--dial-timeout", "20s", "--node-timeout", "10s"}
	for _, u := range urls {
		args = append(args, "--node", u)
	}
	code, out, errs := redlockCommand(t, args...)
	assert.Zero(t, code, out+errs)
	assert.Contains(t, out, "3 of 3 servers answered, 2 are needed: fine")

	need.Program(t, "redis-cli")
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

// startConfigured starts a server with the configuration of the folder, and returns the URL by which
// clients have it.
func startConfigured(t *testing.T) (address string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range readServers(t) {
		text = strings.NewReplacer("dir /data", "dir "+folder, "/etc/redis", folder).Replace(text)
		tr.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: 1, Arguments: []string{filepath.Join(folder, "redis.conf"), "--port", "0"}})
	tr.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return strings.Replace(f.URLs()[0], "unix://", "unix://locks:CHANGE-ME@", 1)
}

// isOfServers tells commands of docs/KUBERNETES.md for servers from those for the sidecar.
func isOfServers(c readme.Command) bool {
	return strings.Contains(c.Text, "redlock-server") || strings.Contains(c.Text, "kubernetes/servers") ||
		strings.Contains(c.Text, " -- /redlock ") || strings.Contains(c.Text, "contrib/prometheus") || strings.Contains(c.Text, "redlock-dashboard")
}

// TestThePageOfServers: what docs/KUBERNETES.md does with the servers is about what the folder makes, and
// the alerts of contrib/prometheus come out as a PrometheusRule.
func TestThePageOfServers(t *testing.T) {
	t.Parallel()
	r := render(readServers(t))
	tr.Empty(t, r.wrong)
	sidecar := sidecarOf(t)
	root := readme.Root(t)
	var deleted, asked, rules int
	for _, c := range readme.Commands(t) {
		if c.Document != "docs/KUBERNETES.md" || !c.Whole || !isOfServers(c) {
			continue
		}
		pod, isDelete := strings.CutPrefix(c.Text, "kubectl delete pod ")
		_, exec, isExec := strings.Cut(c.Text, "kubectl exec deploy/"+text(sidecar, "metadata.name")+" -c "+text(sidecar, "spec.template.spec.initContainers.0.name")+" -- /redlock ")
		rule, isRule := strings.CutSuffix(c.Text, " | kubectl apply -f -")
		_, file, isFile := strings.Cut(c.Text, "--from-file=")
		_, folder, isFolder := strings.Cut(c.Text, "apply -k ")
		_, selected, isSelector := strings.Cut(c.Text, "--selector ")
		switch {
		case isDelete:
			deleted++
			assert.Equal(t, fmt.Sprintf("%s-%d", text(r.set, "metadata.name"), number(r.set, "spec.replicas")-1), pod, c.Place())
		case isExec:
			asked++
			exec, _, _ = strings.Cut(exec, ";")
			assert.NoError(t, parses(strings.Fields(exec)), c.Place())
		case isRule:
			rules++
			code, said := inShell(t, root, rule)
			tr.Zero(t, code, said)
			var made, of any
			tr.NoError(t, yaml.Unmarshal([]byte(said), &made))
			alerts, err := os.ReadFile(filepath.Join(root, "contrib", "prometheus", "alerts.yaml"))
			tr.NoError(t, err)
			tr.NoError(t, yaml.Unmarshal(alerts, &of))
			assert.Equal(t, "monitoring.coreos.com/v1 PrometheusRule", text(made, "apiVersion")+" "+text(made, "kind"))
			assert.NotEmpty(t, text(made, "metadata.name"))
			assert.NotEmpty(t, list(of, "groups"))
			assert.Equal(t, list(of, "groups"), list(made, "spec.groups"), "whose metrics contrib/prometheus compares with what it exports")
		case isFile:
			assert.FileExists(t, filepath.Join(root, file), c.Place())
		case isFolder:
			assert.Equal(t, strings.TrimPrefix(serversFolder, "../../"), folder, c.Place())
		case isSelector:
			assert.Contains(t, selected, "app="+text(r.set, "spec.template.metadata.labels.app")+" ", c.Place())
		default:
			assert.Equal(t, "kubectl label configmap redlock-dashboard grafana_dashboard=1", c.Text)
		}
	}
	assert.Equal(t, []int{1, 2, 1}, []int{deleted, asked, rules})
}
