//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/redquorum/redquorum/internal/serve"
	"github.com/redquorum/redquorum/redlocktest"
)

const manifest = "../../deploy/kubernetes/sidecar.yaml"

// A resource is what is read of a document of the manifest: of a Deployment or a Service.
type resource struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Replicas                 int
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]any
		Ports                    []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
	}
}

type pod struct {
	AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
	EnableServiceLinks            *bool  `yaml:"enableServiceLinks"`
	RestartPolicy                 string `yaml:"restartPolicy"`
	Affinity                      affinity
	TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool              `yaml:"runAsNonRoot"`
		RunAsUser      int               `yaml:"runAsUser"`
		FSGroup        int               `yaml:"fsGroup"`
		SeccompProfile map[string]string `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Volumes []struct {
		Name      string
		EmptyDir  map[string]string `yaml:"emptyDir"`
		Projected struct {
			DefaultMode int `yaml:"defaultMode"`
			Sources     []struct {
				ConfigMap struct{ Name string } `yaml:"configMap"`
				Secret    struct{ Name string }
			}
		}
	}
	InitContainers []container `yaml:"initContainers"`
	Containers     []container
}

type container struct {
	Name, Image    string
	RestartPolicy  string `yaml:"restartPolicy"`
	Command, Args  []string
	Env            []envVariable
	Ports          []port
	StartupProbe   *probe `yaml:"startupProbe"`
	LivenessProbe  *probe `yaml:"livenessProbe"`
	ReadinessProbe *probe `yaml:"readinessProbe"`
	Resources      struct {
		Requests, Limits map[string]string
	}
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type port struct {
	Name          string
	ContainerPort int `yaml:"containerPort"`
}

type envVariable struct {
	Name, Value string
	ValueFrom   struct {
		SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
		FieldRef     struct {
			FieldPath string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
	} `yaml:"valueFrom"`
}

type probe struct {
	HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
	TCPSocket        struct{ Port string }       `yaml:"tcpSocket"`
	Exec             struct{ Command []string }
	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	SuccessThreshold int `yaml:"successThreshold"`
	FailureThreshold int `yaml:"failureThreshold"`
}

// An inspector collects what is wrong with a manifest.
type inspector struct {
	wrong  []string
	probes func(path string) (status int) // of redlock serve
}

func (in *inspector) check(good bool, format string, args ...any) {
	if !good {
		in.wrong = append(in.wrong, fmt.Sprintf(format, args...))
	}
}

// inspect reads a manifest. Fields that no resource has are wrong, too.
func (in *inspector) inspect(text string) {
	from := yaml.NewDecoder(strings.NewReader(text))
	from.KnownFields(true)
	var deployment *resource
	var services []*resource
	for {
		r := &resource{}
		err := from.Decode(r)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			in.check(false, "%v", err)
			return
		}
		switch r.APIVersion + " " + r.Kind {
		case "apps/v1 Deployment":
			deployment = r
		case "v1 Service":
			services = append(services, r)
		default:
			in.check(false, "a %s %s is not expected", r.APIVersion, r.Kind)
		}
	}
	in.check(deployment != nil && len(services) == 2, "a Deployment and two Services are wanted")
	if deployment == nil {
		return
	}
	in.deployment(deployment)
	for _, s := range services {
		in.service(s, &deployment.Spec.Template.Spec)
		in.check(s.Spec.Selector["app"] == deployment.Spec.Template.Metadata.Labels["app"], "%s selects other pods", s.Metadata.Name)
	}
}

func (in *inspector) deployment(d *resource) {
	p := &d.Spec.Template.Spec
	labels, _ := d.Spec.Selector["matchLabels"].(map[string]any)
	in.check(len(labels) > 0 && labels["app"] == d.Spec.Template.Metadata.Labels["app"], "the Deployment selects other pods")
	in.check(d.Spec.Replicas == 3, "three replicas are wanted")
	in.check(len(p.InitContainers) == 1 && len(p.Containers) == 1, "a sidecar and a program are wanted")
	if len(in.wrong) > 0 {
		return
	}
	in.confined(p)
	in.sidecar(p)
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		in.check(strings.HasPrefix(c.Image, "registry.example/") && strings.Contains(c.Image, ":"), "%s: the image %s is no placeholder", c.Name, c.Image)
		for _, probe := range []*probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			in.probe(&c, probe)
		}
		for _, m := range c.VolumeMounts {
			in.check(len(p.Volumes) == 1 && m.Name == p.Volumes[0].Name && p.Volumes[0].EmptyDir["medium"] == "Memory", "%s mounts no emptyDir %s", c.Name, m.Name)
		}
	}
}

// confined checks that a pod has no rights that it does not need, and what it is to have of the machine.
func (in *inspector) confined(p *pod) {
	in.check(p.AutomountServiceAccountToken != nil && !*p.AutomountServiceAccountToken, "the pod gets a token of the API")
	s := p.SecurityContext
	in.check(s.RunAsNonRoot && s.RunAsUser > 0 && s.SeccompProfile["type"] == "RuntimeDefault", "the pod has rights that it does not need")
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		s := c.SecurityContext
		in.check(s.ReadOnlyRootFilesystem && s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation && slices.Equal(s.Capabilities.Drop, []string{"ALL"}),
			"%s has rights that it does not need", c.Name)
		in.check(c.Resources.Requests["cpu"] != "" && c.Resources.Requests["memory"] != "" && c.Resources.Limits["memory"] != "", "%s: the resources are not complete", c.Name)
	}
}

func (in *inspector) probe(c *container, p *probe) {
	if p == nil {
		return
	}
	named := slices.ContainsFunc(c.Ports, func(has port) bool { return has.Name == p.HTTPGet.Port })
	in.check(named, "%s: a probe is of the port %q, which it has not", c.Name, p.HTTPGet.Port)
	if c.RestartPolicy != "" {
		in.check(in.probes(p.HTTPGet.Path) != 404, "redlock serve answers no probe %s", p.HTTPGet.Path)
	}
}

// sidecar checks redlock serve and what the program shares with it.
func (in *inspector) sidecar(p *pod) {
	c, program := &p.InitContainers[0], &p.Containers[0]
	in.check(c.RestartPolicy == "Always", "without restartPolicy the program waits for the end of redlock")
	in.check(len(c.Args) > 0 && c.Args[0] == "serve", "the sidecar is redlock serve")
	in.check(c.LivenessProbe != nil && c.LivenessProbe.HTTPGet.Path == "/healthz", "liveness is /healthz")
	in.check(c.StartupProbe != nil && c.StartupProbe.HTTPGet.Path == "/healthz", "the program begins when redlock serves")
	in.check(c.ReadinessProbe != nil && c.ReadinessProbe.HTTPGet.Path != "/leader", "a rollout waits for pods to be ready, and of those that do not lead it would for ever")

	command := newServe()
	flags := command.Flags()
	if err := command.ParseFlags(c.Args[1:]); err != nil {
		in.check(false, "the arguments: %v", err)
		return
	}
	text := func(name string) string { return flags.Lookup(name).Value.String() }
	_, at, err := net.SplitHostPort(text("probes"))
	in.check(err == nil && len(c.Ports) == 1 && fmt.Sprint(c.Ports[0].ContainerPort) == at, "--probes %s is not the port of the container", text("probes"))
	socket, isUnix := strings.CutPrefix(text("listen"), "unix:")
	in.check(isUnix, "the socket is for the pod alone")
	for _, each := range []*container{c, program} {
		in.check(len(each.VolumeMounts) == 1 && each.VolumeMounts[0].MountPath == path.Dir(socket), "%s does not have the folder of the socket %s", each.Name, socket)
	}
	in.check(text("socket-mode") == "0660" && p.SecurityContext.FSGroup > 0, "the program's user cannot use the socket")
	in.check(slices.ContainsFunc(program.Env, func(e envVariable) bool { return e.Value == socket }), "the program is not told of %s", socket)
	grace, err := time.ParseDuration(text("stop-within"))
	in.check(err == nil && time.Duration(p.TerminationGracePeriodSeconds)*time.Second >= grace+10*time.Second, "the pod is killed before redlock and the program have ended")
	in.check(text("office") != "", "redlock campaigns for no office")
	in.environment(c)
}

// environment checks that what the sidecar gets from its environment is there.
func (in *inspector) environment(c *container) {
	have := map[string]bool{}
	for _, e := range c.Env {
		have[e.Name] = true
		if e.Name == "REDLOCK_NODES" {
			in.check(e.ValueFrom.SecretKeyRef.Name != "" && e.ValueFrom.SecretKeyRef.Key != "", "the URLs have passwords, and are from a Secret")
		}
	}
	in.check(have["REDLOCK_NODES"], "redlock is not told of its servers")
	for _, arg := range c.Args {
		if _, name, ok := strings.Cut(arg, "$("); ok {
			name, _, _ = strings.Cut(name, ")")
			in.check(have[name], "%s: there is no variable %s", arg, name)
		}
	}
}

func (in *inspector) service(s *resource, p *pod) {
	for _, to := range s.Spec.Ports {
		found := false
		for _, c := range slices.Concat(p.InitContainers, p.Containers) {
			for _, has := range c.Ports {
				found = found || has.Name == to.TargetPort
				if has.Name == to.TargetPort && s.Spec.ClusterIP == "None" {
					in.check(has.ContainerPort == to.Port, "%s: a headless Service maps no ports", s.Metadata.Name)
				}
			}
		}
		in.check(found, "%s: no container has the port %s", s.Metadata.Name, to.TargetPort)
	}
	in.check((s.Spec.ClusterIP == "None") == s.Spec.PublishNotReadyAddresses, "%s: balancers that check pods by themselves want all", s.Metadata.Name)
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
	in.inspect(text)
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
		{"replicas: 3", "replica: 3", "field replica not found"},
	} {
		tr.Contains(t, string(text), c.from)
		assert.Contains(t, strings.Join(inspectManifest(t, strings.Replace(string(text), c.from, c.to, 1)), "\n"), c.says, c.to)
	}
}
