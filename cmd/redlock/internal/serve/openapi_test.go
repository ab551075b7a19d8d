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
)

// A description is what of openapi.json is compared with the code.
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

// TestEachFieldIsDescribed, and no other, with room for 64 bits: generators take an integer without a format for one
// of 32. Of which types they are, and which are always there, is seen where answers fit their description.
func TestEachFieldIsDescribed(t *testing.T) {
	t.Parallel()
	bodies := map[string]reflect.Type{
		"Wish": reflect.TypeFor[wish](), "SessionWish": reflect.TypeFor[sessionWish](), "Lease": reflect.TypeFor[leaseAnswer](),
		"Session": reflect.TypeFor[sessionAnswer](), "Leader": reflect.TypeFor[leaderAnswer](), "Inspection": reflect.TypeFor[inspection](), "Holder": reflect.TypeFor[holder](),
		"Problem": reflect.TypeFor[problem](),
	}
	schemas := described(t).Components.Schemas
	assert.ElementsMatch(t, slices.Collect(maps.Keys(bodies)), slices.Collect(maps.Keys(schemas)))
	for name, of := range bodies {
		fields, got := map[string]bool{}, map[string]bool{} // whether they have 64 bits
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
		if strings.HasSuffix(name, "Wish") {
			assert.Equal(t, false, schemas[name]["additionalProperties"], name)
			assert.Nil(t, schemas[name]["required"], name)
		} else {
			assert.NotContains(t, schemas[name], "additionalProperties", "%s: later versions add fields", name)
		}
	}
}

// TestEachKindIsDescribed, and docs/SERVE.md tells of it with all statuses that its answers have.
func TestEachKindIsDescribed(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("problem.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../../../../docs/SERVE.md")
	require.NoError(t, err)
	told := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([\\d, ]+) \\|").FindAllStringSubmatch(string(page), -1) {
		told[row[1]] = strings.Split(row[2], ", ")
	}
	there := map[string][]string{kindBad: {"404", "405"}} // of what is no route
	d := described(t)
	for _, methods := range d.Paths {
		for _, o := range methods {
			for status, r := range o.Responses {
				text, err := json.Marshal(d.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")])
				require.NoError(t, err)
				kinds := regexp.MustCompile(`"enum":\["([^]]*)"\]`).FindStringSubmatch(string(text))
				if kinds == nil {
					continue
				}
				for kind := range strings.SplitSeq(kinds[1], `","`) {
					there[kind] = append(there[kind], status)
				}
			}
		}
	}
	var kinds, named []string
	for _, kind := range regexp.MustCompile(`(?m)^\tkind\w+ += "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		kinds = append(kinds, kind[1])
		slices.Sort(there[kind[1]])
		there[kind[1]] = slices.Compact(there[kind[1]])
	}
	field := d.Components.Schemas["Problem"]["properties"].(map[string]any)["kind"].(map[string]any)
	for _, kind := range field["enum"].([]any) {
		named = append(named, kind.(string))
		assert.Contains(t, field["description"], kind.(string)+": ")
	}
	assert.ElementsMatch(t, kinds, named)
	assert.ElementsMatch(t, kinds, slices.Collect(maps.Keys(told)))
	assert.Equal(t, there, told)
}

// TestEachParameterIsDescribed: the headers and parameters that the code asks for, and no others.
func TestEachParameterIsDescribed(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "view.go" { // of the page
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(r\.Header|q|Query\(\)|r)\.(?:Get|number)\(("[\w-]+"|sessionHeader)[,)]`).FindAllStringSubmatch(string(text), -1) {
			in := map[string]string{"r.Header": "header ", "q": "query ", "Query()": "query ", "r": "query "}[m[1]]
			asked[in+strings.Trim(strings.Replace(m[2], "sessionHeader", sessionHeader, 1), `"`)] = true
		}
	}
	for _, standard := range []string{"Accept", "Authorization", "Content-Type", "Origin"} { // which OpenAPI has no parameters for
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

// schemas compiles what openapi.json says of bodies, and that they have no other fields.
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

// closeObjects has the objects of a schema refuse fields that they do not name: this server sends none.
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

var compiling sync.Mutex // a compiler is for one goroutine

// fits fails the test unless a value is what openapi.json says at a place.
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

// isOfPage reports whether a path is between the page and its server, which nobody else is promised.
func isOfPage(path string) bool {
	return strings.HasPrefix(path, "/ui") || strings.HasPrefix(path, "/v1/survey")
}

// isAsDescribed fails the test unless an answer is one of those that openapi.json has for the route.
func (a answer) isAsDescribed(t *testing.T, pattern string) {
	t.Helper()
	d := described(t)
	kind, _, _ := mime.ParseMediaType(a.headers.Get("Content-Type"))
	method, path, ok := strings.Cut(pattern, " ")
	if isOfPage(path) {
		return
	}
	if !ok { // no route, or refused before it was looked for
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
