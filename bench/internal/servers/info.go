package servers

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// info is all that the server says about itself, in one answer, so that its parts
// belong to one moment. Servers that only imitate Redis may not know it.
func (c *conn) info(ctx context.Context) (string, error) {
	return redis.String(c.ask(ctx, "INFO", "all"))
}

// fields are the "key:value" lines of an INFO.
func fields(text string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for line := range strings.Lines(text) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
			if ok && !yield(key, value) {
				return
			}
		}
	}
}

// Version is what the nodes run: "redis 7.0.15", or "redis 7.0.15, 7.2.1" if they
// differ. It is empty if none of them says.
func (w *Watch) Version(ctx context.Context) string {
	products := make([]product, len(w.nodes))
	w.each(func(i int, n *node) error {
		return n.use(ctx, func(c *conn) error {
			text, err := c.info(ctx)
			products[i] = readProduct(text)
			return err
		})
	})
	slices.SortFunc(products, func(a, b product) int {
		return strings.Compare(a.name+" "+a.version, b.name+" "+b.version)
	})
	return list(slices.Compact(products))
}

type product struct{ name, version string }

func readProduct(text string) product {
	p := product{name: "redis"}
	for key, value := range fields(text) {
		switch key {
		case "redis_version":
			if p.name == "redis" {
				p.version = value
			}
		case "valkey_version": // which tells clients of Redis another one beside it
			p = product{"valkey", value}
		}
	}
	return p
}

// list names each product once.
func list(products []product) string {
	var parts []string
	last := ""
	for _, p := range products {
		switch {
		case p.version == "":
		case p.name == last:
			parts = append(parts, p.version)
		default:
			parts = append(parts, p.name+" "+p.version)
			last = p.name
		}
	}
	return strings.Join(parts, ", ")
}
