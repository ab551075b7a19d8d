package container_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/container"
)

func TestAvailableSaysWhatIsMissing(t *testing.T) {
	t.Run("no engine", func(t *testing.T) {
		t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none.sock"))
		assert.ErrorContains(t, fleet.Available(t.Context(), fleet.Docker), "does not answer")
	})
	t.Run("an engine that hangs", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
		require.NoError(t, err)
		defer l.Close()
		t.Setenv("DOCKER_HOST", "tcp://"+l.Addr().String())
		assert.ErrorContains(t, fleet.Available(t.Context(), fleet.Docker), "does not answer")
	})
	t.Run("no image and no registry", func(t *testing.T) {
		engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/_ping"):
			case strings.HasSuffix(r.URL.Path, "/images/create"):
				assert.Equal(t, "no/such", r.URL.Query().Get("fromImage"))
				assert.Equal(t, "1.2", r.URL.Query().Get("tag"))
				http.Error(w, "registry unreachable", http.StatusInternalServerError)
			default:
				http.NotFound(w, r)
			}
		}))
		defer engine.Close()
		t.Setenv("DOCKER_HOST", "tcp://"+engine.Listener.Addr().String())
		t.Setenv(container.ImageEnv, "no/such:1.2")
		err := fleet.Available(t.Context(), fleet.Docker)
		assert.ErrorContains(t, err, "registry unreachable")
		assert.ErrorContains(t, err, "integration/image.sh")
		assert.ErrorContains(t, err, container.ImageEnv)
	})
}
