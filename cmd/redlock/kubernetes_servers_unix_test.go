//go:build unix

package main

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
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
	"github.com/redquorum/redquorum/pool"
)

const serversFolder = "../../deploy/kubernetes/servers"

// A header is what each document for kubectl begins with.
type header struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
}

type kustomization struct {
	APIVersion       string `yaml:"apiVersion"`
	Kind, Namespace  string
	Resources        []string
	GeneratorOptions struct {
		DisableNameSuffixHash bool `yaml:"disableNameSuffixHash"`
	} `yaml:"generatorOptions"`
	ConfigMapGenerator []generated `yaml:"configMapGenerator"`
	SecretGenerator    []generated `yaml:"secretGenerator"`
}

type generated struct {
	Name            string
	Files, Literals []string
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type affinityTerm struct {
	TopologyKey   string   `yaml:"topologyKey"`
	LabelSelector selector `yaml:"labelSelector"`
}

type affinity struct {
	PodAntiAffinity struct {
		Required  []affinityTerm `yaml:"requiredDuringSchedulingIgnoredDuringExecution"`
		Preferred []struct {
			Weight int
			Term   affinityTerm `yaml:"podAffinityTerm"`
		} `yaml:"preferredDuringSchedulingIgnoredDuringExecution"`
	} `yaml:"podAntiAffinity"`
}

type podTemplate struct {
	Metadata struct{ Labels map[string]string }
	Spec     pod
}

type statefulSet struct {
	header `yaml:",inline"`
	Spec   struct {
		Replicas             int
		ServiceName          string                `yaml:"serviceName"`
		PodManagementPolicy  string                `yaml:"podManagementPolicy"`
		UpdateStrategy       struct{ Type string } `yaml:"updateStrategy"`
		Selector             selector
		Template             podTemplate
		VolumeClaimTemplates []struct {
			Metadata struct{ Name string }
			Spec     struct {
				AccessModes []string `yaml:"accessModes"`
				Resources   struct{ Requests map[string]string }
			}
		} `yaml:"volumeClaimTemplates"`
	}
}

type disruptionBudget struct {
	header `yaml:",inline"`
	Spec   struct {
		MaxUnavailable int `yaml:"maxUnavailable"`
		Selector       selector
	}
}

type networkPolicy struct {
	header `yaml:",inline"`
	Spec   struct {
		PodSelector     selector `yaml:"podSelector"`
		PolicyTypes     []string `yaml:"policyTypes"`
		Ingress, Egress []struct {
			From []struct {
				PodSelector selector `yaml:"podSelector"`
			}
			Ports []struct{ Protocol, Port string }
		}
	}
}

type cronJob struct {
	header `yaml:",inline"`
	Spec   struct {
		Schedule                   string
		ConcurrencyPolicy          string `yaml:"concurrencyPolicy"`
		StartingDeadlineSeconds    int    `yaml:"startingDeadlineSeconds"`
		SuccessfulJobsHistoryLimit int    `yaml:"successfulJobsHistoryLimit"`
		FailedJobsHistoryLimit     int    `yaml:"failedJobsHistoryLimit"`
		JobTemplate                struct {
			Spec struct {
				BackoffLimit          *int `yaml:"backoffLimit"`
				ActiveDeadlineSeconds int  `yaml:"activeDeadlineSeconds"`
				Template              podTemplate
			}
		} `yaml:"jobTemplate"`
	}
}

// strictly decodes a document. Fields that it must not have are an error.
func strictly(text string, into any) error {
	from := yaml.NewDecoder(strings.NewReader(text))
	from.KnownFields(true)
	return from.Decode(into)
}

// A rendered is what kubectl apply -k would send to the cluster.
type rendered struct {
	inspector
	files      map[string]string
	namespace  string
	configMaps map[string]map[string]string
	secrets    map[string]map[string]string
	servers    *statefulSet
	service    *resource
	budget     *disruptionBudget
	policy     *networkPolicy
	doctor     *cronJob
}

// render reads the folder of a kustomization, whose files are given by their names.
func render(files map[string]string) *rendered {
	r := &rendered{files: files, servers: &statefulSet{}, service: &resource{}, budget: &disruptionBudget{}, policy: &networkPolicy{}, doctor: &cronJob{}}
	k := &kustomization{}
	if err := strictly(files["kustomization.yaml"], k); err != nil {
		r.check(false, "kustomization.yaml: %v", err)
		return r
	}
	r.check(k.APIVersion == "kustomize.config.k8s.io/v1beta1" && k.Kind == "Kustomization", "kustomization.yaml is none")
	r.check(k.GeneratorOptions.DisableNameSuffixHash, "the names of generated Secrets are not those that others refer to")
	r.namespace = k.Namespace
	used := map[string]bool{"kustomization.yaml": true}
	r.configMaps, r.secrets = r.generate(k.ConfigMapGenerator, used), r.generate(k.SecretGenerator, used)
	into := map[string]any{
		"apps/v1 StatefulSet": r.servers, "v1 Service": r.service, "policy/v1 PodDisruptionBudget": r.budget,
		"networking.k8s.io/v1 NetworkPolicy": r.policy, "batch/v1 CronJob": r.doctor,
	}
	for _, name := range k.Resources {
		used[name] = true
		r.check(files[name] != "", "there is no file %s", name)
		for text := range strings.SplitSeq(files[name], "\n---\n") {
			var h header
			if err := yaml.Unmarshal([]byte(text), &h); err != nil {
				r.check(false, "%s: %v", name, err)
				continue
			}
			kind := h.APIVersion + " " + h.Kind
			if into[kind] == nil {
				r.check(false, "%s: a %s is not expected, or not twice", name, kind)
				continue
			}
			err := strictly(text, into[kind])
			r.check(err == nil, "%s: %v", name, err)
			delete(into, kind)
		}
	}
	for kind := range into {
		r.check(false, "there is no %s", kind)
	}
	for name := range files {
		r.check(used[name], "nothing uses the file %s", name)
	}
	return r
}

// generate returns what is generated, by name and key.
func (r *rendered) generate(all []generated, used map[string]bool) map[string]map[string]string {
	made := map[string]map[string]string{}
	for _, g := range all {
		made[g.Name] = map[string]string{}
		for _, name := range g.Files {
			r.check(r.files[name] != "", "there is no file %s", name)
			used[name], made[g.Name][name] = true, r.files[name]
		}
		for _, literal := range g.Literals {
			key, value, _ := strings.Cut(literal, "=")
			made[g.Name][key] = value
		}
	}
	return made
}

// inspect checks that what is rendered fits together, and fits the sidecar.
func (r *rendered) inspect(sidecar *resource) {
	if len(r.wrong) > 0 {
		return
	}
	set, p := r.servers.Spec, &r.servers.Spec.Template.Spec
	labels := set.Template.Metadata.Labels
	r.check(set.Replicas >= 3 && set.Replicas%2 == 1, "%d servers are not three or five", set.Replicas)
	r.check(set.UpdateStrategy.Type == "OnDelete", "a change that is applied restarts servers by itself")
	r.check(set.PodManagementPolicy == "Parallel", "a server that is down keeps others from coming back")
	r.check(len(labels) > 0 && maps.Equal(set.Selector.MatchLabels, labels), "the StatefulSet selects other pods")
	anti := p.Affinity.PodAntiAffinity
	r.check(len(anti.Required) == 1 && anti.Required[0].TopologyKey == "kubernetes.io/hostname", "two servers can be on one machine")
	r.check(len(anti.Preferred) == 1 && anti.Preferred[0].Term.TopologyKey == "topology.kubernetes.io/zone", "two servers can be in one zone where there are three")
	for _, term := range anti.Required {
		r.check(maps.Equal(term.LabelSelector.MatchLabels, labels), "the anti-affinity is with other pods")
	}
	for _, term := range anti.Preferred {
		r.check(maps.Equal(term.Term.LabelSelector.MatchLabels, labels), "the anti-affinity is with other pods")
	}
	r.check(maps.Equal(r.budget.Spec.Selector.MatchLabels, labels), "the PodDisruptionBudget is of other pods")
	r.check(r.budget.Spec.MaxUnavailable == 1, "a drain may take two servers at once")
	r.confined(p)
	r.confined(&r.doctor.Spec.JobTemplate.Spec.Template.Spec)
	r.check(len(p.Containers) == 1 && len(p.Containers[0].Ports) == 1, "a container with a port is wanted")
	if len(r.wrong) > 0 {
		return
	}
	r.configuration(&p.Containers[0])
	r.addresses(sidecar)
	r.network(sidecar)
	r.probes(sidecar)
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
func (r *rendered) configuration(c *container) {
	p := &r.servers.Spec.Template.Spec
	r.check(slices.Equal(c.Command, []string{"redis-server", "/etc/redis/redis.conf"}), "the server is not started with its configuration")
	mounted := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounted[m.MountPath] = m.Name
	}
	found := map[string]bool{}
	for _, v := range p.Volumes {
		r.check(v.Projected.DefaultMode == 0440, "others on the machine may read the ACL")
		r.check(mounted["/etc/redis"] == v.Name, "%s is not mounted at /etc/redis", v.Name)
		for _, source := range v.Projected.Sources {
			for file := range r.configMaps[source.ConfigMap.Name] {
				found[file] = true
			}
			for file := range r.secrets[source.Secret.Name] {
				found[file] = true
			}
		}
	}
	r.check(found["redis.conf"], "redis.conf is not in the pod")
	r.check(found["users.acl"] && r.setting("aclfile") == "/etc/redis/users.acl", "the ACL is not in the pod, or not where redis.conf has it")
	claims := r.servers.Spec.VolumeClaimTemplates
	r.check(len(claims) == 1 && mounted[r.setting("dir")] == claims[0].Metadata.Name, "the data is on no volume of its own")
	r.check(p.SecurityContext.FSGroup > 0, "the server cannot write to its volume")
	r.check(r.setting("port") == fmt.Sprint(c.Ports[0].ContainerPort), "the port of redis.conf is another")
	for _, word := range []string{"replicaof", "slaveof", "cluster-enabled", "sentinel"} {
		r.check(!strings.Contains(strings.ToLower(r.files["redis.conf"]+strings.Join(c.Command, " ")), word+" "), "%s: the servers are not independent", word)
	}
	limit, _ := strconv.Atoi(strings.TrimSuffix(c.Resources.Limits["memory"], "Mi"))
	memory, _ := strconv.Atoi(strings.TrimSuffix(r.setting("maxmemory"), "mb"))
	r.check(memory > 0 && limit >= 2*memory, "a child that rewrites the file has no memory")
}

// addresses checks that clients have one address for each pod, and for each its own.
func (r *rendered) addresses(sidecar *resource) {
	set, s := r.servers.Spec, r.service
	r.check(s.Spec.ClusterIP == "None", "a Service with a cluster IP balances over the servers")
	r.check(s.Spec.PublishNotReadyAddresses, "a server in quarantine has no address, and its quarantine does not begin")
	r.check(set.ServiceName == s.Metadata.Name, "the pods have no addresses: the StatefulSet is of another Service")
	r.check(len(s.Spec.Selector) == 1 && s.Spec.Selector["app"] == set.Template.Metadata.Labels["app"], "the Service is of other pods")
	r.inspector.service(s, &set.Template.Spec)
	var want []string
	for i := range set.Replicas {
		want = append(want, fmt.Sprintf("%s-%d.%s.%s.svc.cluster.local:%s", r.servers.Metadata.Name, i, s.Metadata.Name, r.namespace, r.setting("port")))
	}
	doctor := r.doctor.Spec.JobTemplate.Spec.Template.Spec.Containers
	clients := append(slices.Clone(doctor), sidecar.Spec.Template.Spec.InitContainers...)
	r.check(len(doctor) == 1 && len(clients) == 2, "a container is wanted")
	for _, c := range clients {
		r.inspector.environment(&c)
		for _, e := range c.Env {
			if e.Name != "REDLOCK_NODES" {
				continue
			}
			ref := e.ValueFrom.SecretKeyRef
			var have []string
			for each := range strings.SplitSeq(r.secrets[ref.Name][ref.Key], ",") {
				u, err := url.Parse(each)
				if err != nil || u.User == nil {
					r.check(false, "the Secret %s has no key %s with URLs", ref.Name, ref.Key)
					return
				}
				have = append(have, u.Host)
				password, _ := u.User.Password()
				r.check(strings.Contains(r.files["users.acl"], "\nuser "+u.User.Username()+" on >"+password+" "), "the user of an address is not in users.acl")
			}
			r.check(slices.Equal(want, have), "the clients have %v, and the pods are %v", have, want)
		}
	}
}

// network checks who may reach whom.
func (r *rendered) network(sidecar *resource) {
	n := r.policy.Spec
	r.check(maps.Equal(n.PodSelector.MatchLabels, r.servers.Spec.Template.Metadata.Labels), "the NetworkPolicy is of other pods")
	r.check(slices.Contains(n.PolicyTypes, "Ingress") && slices.Contains(n.PolicyTypes, "Egress") && len(n.Egress) == 0, "servers can reach each other")
	r.check(len(n.Ingress) == 1 && len(n.Ingress[0].From) == 1 && len(n.Ingress[0].Ports) == 1, "all pods may connect")
	if len(r.wrong) > 0 {
		return
	}
	r.check(n.Ingress[0].Ports[0].Port == r.servers.Spec.Template.Spec.Containers[0].Ports[0].Name, "the NetworkPolicy opens another port")
	let := n.Ingress[0].From[0].PodSelector.MatchLabels
	r.check(len(let) > 0, "all pods may connect")
	for of, has := range map[string]map[string]string{
		"redlock doctor": r.doctor.Spec.JobTemplate.Spec.Template.Metadata.Labels,
		"the sidecar":    sidecar.Spec.Template.Metadata.Labels,
	} {
		for key, value := range let {
			r.check(has[key] == value, "%s is not let in", of)
		}
	}
}

// probes checks that a server is ready no sooner than it has its vote again, and the doctor's Job.
func (r *rendered) probes(sidecar *resource) {
	c := &r.servers.Spec.Template.Spec.Containers[0]
	live, ready := c.LivenessProbe, c.ReadinessProbe
	r.check(live != nil && len(live.Exec.Command) == 0 && live.TCPSocket.Port == c.Ports[0].Name, "liveness is the port, and no command")
	job := r.doctor.Spec.JobTemplate.Spec
	doctor := job.Template.Spec.Containers[0]
	r.check(parses(doctor.Args) == nil && len(doctor.Args) > 0 && doctor.Args[0] == "doctor", "the Job does not run redlock doctor")
	r.check(job.Template.Spec.RestartPolicy == "Never" && job.BackoffLimit != nil && *job.BackoffLimit == 0, "a warning is tried again until it is gone")
	r.check(r.doctor.Spec.ConcurrencyPolicy == "Forbid" && job.ActiveDeadlineSeconds > 0 && len(strings.Fields(r.doctor.Spec.Schedule)) == 5, "the Jobs of redlock doctor pile up")
	longest := time.Duration(0)
	for _, e := range doctor.Env {
		if e.Name == "REDLOCK_MAX_TTL" {
			longest, _ = time.ParseDuration(e.Value)
		}
	}
	for _, arg := range sidecar.Spec.Template.Spec.InitContainers[0].Args {
		if value, ok := strings.CutPrefix(arg, "--ttl="); ok {
			ttl, err := time.ParseDuration(value)
			r.check(err == nil && ttl <= longest, "the sidecar's TTL of %s is longer than REDLOCK_MAX_TTL", value)
		}
	}
	r.check(longest > 0, "redlock doctor is not told the longest TTL")
	r.check(ready != nil && len(ready.Exec.Command) == 3, "readiness is a command")
	if ready == nil {
		return
	}
	after := time.Duration(ready.SuccessThreshold-1) * time.Duration(ready.PeriodSeconds) * time.Second
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

// TestTheServersFitTogether, and the sidecar. There is no kubectl, so the test renders what it would.
func TestTheServersFitTogether(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(manifest)
	tr.NoError(t, err)
	inspect := func(files map[string]string) []string {
		sidecar := &resource{}
		tr.NoError(t, strictly(string(text), sidecar))
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
		{"servers.yaml", "replicas: 3", "replica: 3", "field replica not found"},
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
	for i := range 3 {
		urls = append(urls, startConfigured(t, i))
	}
	locked(t, urls)
	job := r.doctor.Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	args := append(job.Args, "--max-ttl", lockedTTL.String(), "--dial-timeout", "20s", "--node-timeout", "10s")
	for _, u := range urls {
		args = append(args, "--node", u)
	}
	code, out, errs := redlockCommand(t, args...)
	assert.Zero(t, code, out+errs)
	assert.Contains(t, out, "3 of 3 servers answered, 2 are needed: fine")

	need.Program(t, "redis-cli")
	probe := r.servers.Spec.Template.Spec.Containers[0].ReadinessProbe.Exec.Command
	ask := func(port, user string) error {
		line := strings.NewReplacer("redis-cli ", "redis-cli -p "+port+" ", "--user probe", "--user "+user).Replace(probe[2])
		return exec.CommandContext(t.Context(), probe[0], probe[1], line).Run()
	}
	_, port, err := net.SplitHostPort(urls[0][strings.LastIndex(urls[0], "@")+1:])
	tr.NoError(t, err)
	assert.NoError(t, ask(port, "probe"))
	assert.Error(t, ask(port, "nobody"), "an answer that is no PONG")
	assert.Error(t, ask("1", "probe"), "no server")
}

// startConfigured starts a server with the configuration of the folder, on a port of this machine's, and
// returns the URL by which clients have it.
func startConfigured(t *testing.T, i int) (address string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range readServers(t) {
		text = strings.NewReplacer("dir /data", "dir "+folder, "/etc/redis", folder).Replace(text)
		tr.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	tr.NoError(t, fleet.Options{}.OnPort(i, func(port int) error {
		listener, err := net.Listen("tcp", fleet.Loopback(port))
		if err != nil {
			return fleet.ErrPortTaken
		}
		listener.Close()
		c := exec.CommandContext(t.Context(), "redis-server", filepath.Join(folder, "redis.conf"), "--bind", "127.0.0.1", "--port", fmt.Sprint(port))
		var said bytes.Buffer
		c.Stdout, c.Stderr = &said, &said
		tr.NoError(t, c.Start())
		ended := make(chan struct{})
		go func() { defer close(ended); c.Wait() }()
		t.Cleanup(func() { <-ended; fleet.ReleasePort(port) })
		address = "redis://locks:CHANGE-ME@" + fleet.Loopback(port)
		_, dial, err := pool.Dialer(address, patient...)
		tr.NoError(t, err)
		eventually(t, "it answers, or has ended", func() bool {
			select {
			case <-ended:
				return true
			default:
			}
			conn, err := dial(t.Context())
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
		select {
		case <-ended:
			tr.Contains(t, said.String(), "Address already in use")
			return fleet.ErrPortTaken
		default:
			return nil
		}
	}))
	return address
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
	text, err := os.ReadFile(manifest)
	tr.NoError(t, err)
	sidecar := &resource{}
	tr.NoError(t, strictly(string(text), sidecar))
	root := readme.Root(t)
	var deleted, asked, rules int
	for _, c := range readme.Commands(t) {
		if c.Document != "docs/KUBERNETES.md" || !c.Whole || !isOfServers(c) {
			continue
		}
		pod, isDelete := strings.CutPrefix(c.Text, "kubectl delete pod ")
		_, exec, isExec := strings.Cut(c.Text, "kubectl exec deploy/"+sidecar.Metadata.Name+" -c "+sidecar.Spec.Template.Spec.InitContainers[0].Name+" -- /redlock ")
		rule, isRule := strings.CutSuffix(c.Text, " | kubectl apply -f -")
		_, file, isFile := strings.Cut(c.Text, "--from-file=")
		_, folder, isFolder := strings.Cut(c.Text, "apply -k ")
		_, selected, isSelector := strings.Cut(c.Text, "--selector ")
		switch {
		case isDelete:
			deleted++
			assert.Equal(t, fmt.Sprintf("%s-%d", r.servers.Metadata.Name, r.servers.Spec.Replicas-1), pod, c.Place())
		case isExec:
			asked++
			exec, _, _ = strings.Cut(exec, ";")
			assert.NoError(t, parses(strings.Fields(exec)), c.Place())
		case isRule:
			rules++
			code, said := inShell(t, root, rule)
			tr.Zero(t, code, said)
			var made, of struct {
				header `yaml:",inline"`
				Groups []any
				Spec   struct{ Groups []any }
			}
			tr.NoError(t, strictly(said, &made))
			alerts, err := os.ReadFile(filepath.Join(root, "contrib", "prometheus", "alerts.yaml"))
			tr.NoError(t, err)
			tr.NoError(t, yaml.Unmarshal(alerts, &of))
			assert.Equal(t, "monitoring.coreos.com/v1 PrometheusRule", made.APIVersion+" "+made.Kind)
			assert.NotEmpty(t, made.Metadata.Name)
			assert.NotEmpty(t, of.Groups)
			assert.Equal(t, of.Groups, made.Spec.Groups, "whose metrics contrib/prometheus compares with what it exports")
		case isFile:
			assert.FileExists(t, filepath.Join(root, file), c.Place())
		case isFolder:
			assert.Equal(t, strings.TrimPrefix(serversFolder, "../../"), folder, c.Place())
		case isSelector:
			assert.Contains(t, selected, "app="+r.servers.Spec.Template.Metadata.Labels["app"]+" ", c.Place())
		default:
			assert.Equal(t, "kubectl label configmap redlock-dashboard grafana_dashboard=1", c.Text)
		}
	}
	assert.Equal(t, []int{1, 2, 1}, []int{deleted, asked, rules})
}
