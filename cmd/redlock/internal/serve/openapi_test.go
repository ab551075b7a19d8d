package serve

import (
	"bytes"
	"encoding/json"
	"maps"
	"mime"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// A description is the part of openapi.json that is compared with the code.
type description struct {
	Paths      map[string]map[string]operation
	Components struct {
		Responses  map[string]response
		Parameters map[string]parameter
		Schemas    map[string]map[string]any
	}
}

type operation struct {
	Parameters  []parameter
	RequestBody *response
	Responses   map[string]response
}

type parameter struct {
	Ref, Name, In string
	Schema        map[string]any
}

type response struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Schema any
		Events map[string]any `json:"x-events"`
	}
}

func described(t *testing.T) (d description) {
	require.NoError(t, json.Unmarshal(openAPI, &d))
	return d
}

func TestEachRouteIsDescribed(t *testing.T) {
	t.Parallel()
	var there []string
	for path, methods := range described(t).Paths {
		for method := range methods {
			there = append(there, strings.ToUpper(method)+" "+path)
		}
	}
	_, s := start(t, Config{})
	assert.ElementsMatch(t, slices.Collect(maps.Keys(s.routes())), there)
	c := &client{t: t, server: s}
	assert.JSONEq(t, string(openAPI), c.ask("GET", "/openapi.json", "").body)
	assert.Equal(t, "ok\n", c.ask("GET", "/healthz", "").body)
}

// TestEachFieldIsDescribed: no other field is described, and integers have 64 bits, because
// generators read an integer without a format as one of 32 bits. The comparison of answers with
// their description checks the types and required fields.
func TestEachFieldIsDescribed(t *testing.T) {
	t.Parallel()
	bodies := map[string]reflect.Type{
		"LockRequest": reflect.TypeFor[api.LockRequest](), "SessionRequest": reflect.TypeFor[api.SessionRequest](), "Lease": reflect.TypeFor[api.LeaseAnswer](),
		"Session": reflect.TypeFor[api.SessionAnswer](), "Leader": reflect.TypeFor[leaderAnswer](), "Inspection": reflect.TypeFor[api.Inspection](), "Holder": reflect.TypeFor[api.Holder](),
		"Sessions": reflect.TypeFor[api.Sessions](), "ListedSession": reflect.TypeFor[api.ListedSession](), "ListedLease": reflect.TypeFor[api.ListedLease](),
		"Problem": reflect.TypeFor[api.Problem](),
	}
	schemas := described(t).Components.Schemas
	assert.ElementsMatch(t, slices.Collect(maps.Keys(bodies)), slices.Collect(maps.Keys(schemas)))
	for name, of := range bodies {
		fields, got := map[string]bool{}, map[string]bool{} // true for 64 bits
		for _, f := range reflect.VisibleFields(of) {
			if field, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous && f.IsExported() {
				fields[field] = f.Type.Kind() == reflect.Int64
			}
		}
		for field, schema := range schemas[name]["properties"].(map[string]any) {
			got[field] = schema.(map[string]any)["format"] == "int64"
			assert.NotEmpty(t, schema.(map[string]any)["description"], "%s.%s", name, field)
		}
		assert.Equal(t, fields, got, name)
		if strings.HasSuffix(name, "Request") {
			assert.Equal(t, false, schemas[name]["additionalProperties"], name)
			assert.Nil(t, schemas[name]["required"], name)
		} else {
			assert.NotContains(t, schemas[name], "additionalProperties", "%s: later versions add fields", name)
		}
	}
}

// TestEachKindIsDescribed: each kind also occurs in an answer.
func TestEachKindIsDescribed(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("api/problem.go")
	require.NoError(t, err)
	there := map[string]bool{}
	d := described(t)
	for _, methods := range d.Paths {
		for _, o := range methods {
			for _, r := range o.Responses {
				text, err := json.Marshal(d.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")])
				require.NoError(t, err)
				kinds := regexp.MustCompile(`"enum":\["([^]]*)"\]`).FindStringSubmatch(string(text))
				if kinds == nil {
					continue
				}
				for kind := range strings.SplitSeq(kinds[1], `","`) {
					there[kind] = true
				}
			}
		}
	}
	var kinds, named []string
	for _, kind := range regexp.MustCompile(`(?m)^\tKind\w+ += "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		kinds = append(kinds, kind[1])
	}
	field := d.Components.Schemas["Problem"]["properties"].(map[string]any)["kind"].(map[string]any)
	for _, kind := range field["enum"].([]any) {
		named = append(named, kind.(string))
		assert.Contains(t, field["description"], kind.(string)+": ")
	}
	assert.ElementsMatch(t, kinds, named)
	assert.ElementsMatch(t, kinds, slices.Collect(maps.Keys(there)))
	assert.Equal(t, kinds, api.Kinds)
}

// TestEachParameterIsDescribed: these are exactly the headers and parameters that the code reads.
func TestEachParameterIsDescribed(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	inAPI, err := filepath.Glob("api/*.go")
	require.NoError(t, err)
	for _, name := range append(files, inAPI...) {
		if strings.HasSuffix(name, "_test.go") || name == "view.go" { // belongs to the page
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(r\.Header|q|Query\(\))\.Get\(("[\w-]+"|(?:api\.)?SessionHeader)\)|[nN]umber\((r)[.\w]*, ("[\w-]+"),`).FindAllStringSubmatch(string(text), -1) {
			in := map[string]string{"r.Header": "header ", "q": "query ", "Query()": "query ", "r": "query "}[m[1]+m[3]]
			asked[in+strings.Trim(strings.Replace(strings.TrimPrefix(m[2]+m[4], "api."), "SessionHeader", api.SessionHeader, 1), `"`)] = true
		}
	}
	for _, standard := range []string{"Accept", "Authorization", "Content-Type", "Origin"} { // OpenAPI excludes these from parameters
		require.True(t, asked["header "+standard], standard)
		delete(asked, "header "+standard)
	}
	d := described(t)
	there := map[string]bool{}
	for path, methods := range d.Paths {
		for _, o := range methods {
			for _, p := range o.Parameters {
				if p.Name == "" {
					p = d.Components.Parameters["Session"]
				}
				if p.In == "path" {
					assert.Contains(t, path, "{"+p.Name+"}")
					continue
				}
				if p.Schema["type"] == "integer" && p.Schema["maximum"] == nil {
					assert.Equal(t, "int64", p.Schema["format"], "%s has no room for a token, which is larger than 32 bits hold", p.Name)
				}
				there[p.In+" "+p.Name] = true
			}
		}
	}
	assert.Equal(t, asked, there)
}

const at = "openapi.json"

// schemas compiles the schemas of bodies in openapi.json, and forbids other fields.
var schemas = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		return nil, err
	}
	closeObjects(doc)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	return c, c.AddResource(at, doc)
})

// closeObjects makes the objects of a schema reject unknown fields, because this server sends none.
func closeObjects(schema any) {
	switch of := schema.(type) {
	case []any:
		for _, item := range of {
			closeObjects(item)
		}
	case map[string]any:
		if of["type"] == "object" && of["properties"] != nil {
			of["additionalProperties"] = false
		}
		for _, item := range of {
			closeObjects(item)
		}
	}
}

var compiling sync.Mutex // only one goroutine may use a compiler

// fits fails the test unless a value matches the schema at a place of openapi.json.
func fits(t *testing.T, value string, place ...string) {
	t.Helper()
	compiling.Lock()
	defer compiling.Unlock()
	c, err := schemas()
	require.NoError(t, err)
	for i := range place {
		place[i] = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(place[i])
	}
	schema, err := c.Compile(at + "#/" + strings.Join(place, "/"))
	require.NoError(t, err)
	got, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	require.NoError(t, err, value)
	assert.NoError(t, schema.Validate(got), value)
}

// isOfPage reports whether a path is only for the page, without a promise to other programs.
func isOfPage(path string) bool {
	return strings.HasPrefix(path, "/ui") || strings.HasPrefix(path, "/v1/survey")
}

// isAsDescribed fails the test unless openapi.json describes the answer for the route.
func (a answer) isAsDescribed(t *testing.T, pattern string) {
	t.Helper()
	d := described(t)
	kind, _, _ := mime.ParseMediaType(a.headers.Get("Content-Type"))
	method, path, ok := strings.Cut(pattern, " ")
	if isOfPage(path) {
		return
	}
	if !ok { // no route, or rejected before the search for a route
		fits(t, a.body, "components", "schemas", "Problem")
		return
	}
	place := []string{"paths", path, strings.ToLower(method), "responses", strconv.Itoa(a.status)}
	r, ok := d.Paths[path][strings.ToLower(method)].Responses[strconv.Itoa(a.status)]
	if !assert.True(t, ok, "%s: no answer has the status %d: %s", pattern, a.status, a.body) {
		return
	}
	if name := strings.TrimPrefix(r.Ref, "#/components/responses/"); name != "" {
		r, place = d.Components.Responses[name], []string{"components", "responses", name}
	}
	if len(r.Content) == 0 {
		assert.Empty(t, a.body, pattern)
		return
	}
	if !assert.Contains(t, r.Content, kind, "%s: %d", pattern, a.status) {
		return
	}
	place = append(place, "content", kind)
	switch kind {
	case "text/plain":
		quoted, _ := json.Marshal(a.body)
		fits(t, string(quoted), append(place, "schema")...)
	case "text/event-stream":
		events := regexp.MustCompile(`event: (\w+)\ndata: (.*)\n\n`).FindAllStringSubmatch(a.body, -1)
		for _, e := range events {
			fits(t, e[2], append(slices.Clone(place), "x-events", e[1])...)
		}
		assert.NotEmpty(t, events)
	default:
		fits(t, a.body, append(place, "schema")...)
	}
}
