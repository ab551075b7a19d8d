package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
	"github.com/redquorum/redquorum/internal/testenv"
)

// A browser is Chromium without a window, with one tab, driven by the DevTools protocol.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	last    int
	session string // the tab
}

// browse returns a browser, which ends with the test.
func browse(t *testing.T) *browser {
	testenv.NeedProgram(t, "chromium")
	theirs, to, err := os.Pipe()
	require.NoError(t, err)
	from, theirs2, err := os.Pipe()
	require.NoError(t, err)
	c := exec.Command("chromium", "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--user-data-dir="+t.TempDir())
	c.ExtraFiles = []*os.File{theirs, theirs2}
	require.NoError(t, c.Start())
	theirs.Close()
	theirs2.Close()
	b := &browser{t: t, to: to, from: bufio.NewReaderSize(from, 1<<20)}
	t.Cleanup(func() {
		b.session = ""
		b.send("Browser.close", nil)
		c.Wait()
		to.Close()
		from.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Page.enable", nil, nil)
	return b
}

func (b *browser) send(method string, params any) {
	b.last++
	message := map[string]any{"id": b.last, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	require.NoError(b.t, err)
	_, err = b.to.Write(append(text, 0))
	require.NoError(b.t, err)
}

// call sends a command and waits for its answer.
func (b *browser) call(method string, params, into any) {
	b.t.Helper()
	b.send(method, params)
	for {
		text, err := b.from.ReadBytes(0)
		require.NoError(b.t, err)
		var answer struct {
			ID     int
			Error  *struct{ Message string }
			Result json.RawMessage
		}
		require.NoError(b.t, json.Unmarshal(text[:len(text)-1], &answer))
		if answer.ID != b.last {
			continue // an event
		}
		require.Nil(b.t, answer.Error, method)
		if into != nil {
			require.NoError(b.t, json.Unmarshal(answer.Result, into))
		}
		return
	}
}

// run runs JavaScript in the page, and returns its value. If the value is a promise, it returns the
// result of the promise.
func (b *browser) run(script string) any {
	b.t.Helper()
	var done struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}, &done)
	require.Empty(b.t, string(done.ExceptionDetails), script)
	return done.Result.Value
}

// await waits until a JavaScript expression is true in the page.
func (b *browser) await(condition string) {
	b.t.Helper()
	ok := b.run(fmt.Sprintf(`new Promise((done) => {
		const end = performance.now() + 60_000;
		const look = () => { (%s) ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 20); };
		look();
	})`, condition))
	require.Equal(b.t, true, ok, "%s\n%v", condition, b.run("document.body.innerText"))
}

func (b *browser) open(url string) {
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.await(`document.readyState === 'complete'`)
}

// serveTo starts a server on the loopback interface, like for a browser, and opens its page.
func serveTo(t *testing.T, b *browser, c Config) *httptest.Server {
	c.IsLoopback = true
	_, s := start(t, c)
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		b.open("about:blank")
		server.CloseClientConnections()
		server.Close()
	})
	b.open(server.URL + "/ui")
	return server
}

// TestPageWorksInABrowser: one test covers everything that needs a browser, because a browser takes
// seconds to start.
func TestPageWorksInABrowser(t *testing.T) {
	b := browse(t)

	t.Run("what others have written does not run", func(t *testing.T) {
		const hostile = `<img src=x onerror="document.title='run'">`
		l := held(hostile, hostile)
		l.Owner, l.Group = `<script>document.title='run'</script>`, `"><svg onload="document.title='run'">`
		l.Readers = survey.Members{Count: 1, First: []survey.Member{{ID: hostile, Owner: hostile}}}
		l.Keys[0].Error = hostile
		page := &Page{Look: showing(l, held("turned\u202eround", "1"))}
		page.events.add(time.Now(), survey.Event{Lock: hostile, What: hostile, Text: hostile, By: hostile})
		serveTo(t, b, Config{Page: page})
		b.await(`document.querySelectorAll('#locks-rows tr').length === 2`)
		b.run(`document.querySelector('#locks-rows button').click()`)
		b.await(`document.querySelectorAll('#history-rows tr').length === 1`)
		assert.Equal(t, hostile, b.run(`document.querySelector('#locks-rows button').textContent`))
		assert.Equal(t, hostile, b.run(`document.querySelector('#lock-title').textContent`))
		assert.Equal(t, `turned\u{202e}round`, b.run(`document.querySelectorAll('#locks-rows button')[1].textContent`))
		assert.Zero(t, b.run(`document.querySelectorAll('img, svg, main script, dialog script').length`))
		assert.Equal(t, "redlock", b.run(`document.title`))
		// Even without escaping, the policy of the page would prevent the script.
		b.run(`document.body.insertAdjacentHTML('beforeend', '<img id=x src="data:," onerror="document.title=1">')`)
		b.await(`document.getElementById('x').complete`)
		assert.Equal(t, "redlock", b.run(`document.title`))
	})

	t.Run("ten thousand locks", func(t *testing.T) {
		var locks []survey.LockState
		for i := range 10_000 {
			locks = append(locks, held(fmt.Sprintf("lock-%05d", i), "1"))
		}
		serveTo(t, b, Config{Page: &Page{Look: showing(locks...)}})
		b.await(`document.querySelectorAll('#locks-rows tr').length === 100`)
		assert.Equal(t, "1 to 100 of 10000", b.run(`document.getElementById('where').textContent`))
		// The focus stays on the button while other rows are shown.
		b.run(`document.getElementById('after').focus(); document.getElementById('after').click()`)
		b.await(`document.querySelector('#locks-rows button').textContent === 'lock-00100'`)
		assert.Equal(t, "after", b.run(`document.activeElement.id`))
		b.run(`document.getElementById('filter').value = '9999'; document.getElementById('filter').dispatchEvent(new Event('input'))`)
		b.await(`document.querySelectorAll('#locks-rows tr').length === 1`)
		assert.Equal(t, "lock-09999", b.run(`document.querySelector('#locks-rows button').textContent`))
	})

	t.Run("in words, and by a clock of 24 hours", func(t *testing.T) {
		read, job := held("read", "1"), held("job", "1")
		read.Kind, read.Readers = "shared", survey.Members{Count: 1, First: []survey.Member{{ID: "0", Owner: "web-2"}}}
		job.Waiters = survey.Members{Count: 2, First: []survey.Member{{ID: "0123"}, {ID: "4567"}}}
		note := doctor.Finding{Severity: doctor.Note, Check: "persistence", Found: "it writes no append-only file"}
		page := &Page{Look: func(context.Context) (*survey.Survey, error) {
			return &survey.Survey{Locks: []survey.LockState{read, job}, Servers: []survey.ServerState{
				{Server: "a", Findings: []doctor.Finding{note}, Timing: &survey.Timing{Trip: 410, Longest: 2360, Ahead: -12, Within: 30}},
				{Server: "b", Findings: []doctor.Finding{{Severity: doctor.Note, Check: "latency"}}, Timing: &survey.Timing{Trip: 210_000, Longest: 12_000_000, Ahead: -2_000_000, Within: 40}},
				{Server: "c", Error: "refused", Findings: []doctor.Finding{{Severity: doctor.Warning, Check: "reachable", Found: "refused"}}},
			}}, nil
		}}
		page.events.add(time.Now(), survey.Event{Lock: "job", What: "held"})
		page.events.add(time.Now().Add(-49*time.Hour), survey.Event{Lock: "job", What: "free"})
		b.call("Emulation.setLocaleOverride", map[string]any{"locale": "en-US"}, nil)
		defer b.call("Emulation.setLocaleOverride", nil, nil)
		serveTo(t, b, Config{Page: page})
		b.await(`document.querySelectorAll('#events-rows tr').length === 2`)
		row := func(body string, n int) any {
			return b.run(fmt.Sprintf(`[...document.querySelectorAll('#%s tr')[%d].cells].map((cell) => cell.innerText.trim()).join(' | ')`, body, n))
		}
		assert.Contains(t, row("locks-rows", 0), "job | held | web-3 | exclusive | 3 of 3 | ")
		assert.Equal(t, "2", b.run(`document.querySelector('#locks-rows tr').cells[6].textContent`))
		assert.Contains(t, row("locks-rows", 1), "read | held | 1 reader: web-2 | shared")
		assert.Equal(t, "a | well it writes no append-only file | 410 µs, at most 2.4 ms | ±30 µs", row("servers-rows", 0))
		assert.Equal(t, "b | slow | 210 ms, at most 12.0 s | 2000 ms behind, ±40 µs", row("servers-rows", 1))
		assert.Equal(t, "c | down |  | ", row("servers-rows", 2))
		assert.Equal(t, "c does not answer: refused", b.run(`document.getElementById('findings').innerText`))
		assert.Regexp(t, `^\d\d:\d\d:\d\d$`, b.run(`document.querySelectorAll('#events-rows tr')[1].cells[0].textContent`))
		assert.Regexp(t, `^\d+/\d+/\d+, \d\d:\d\d:\d\d$`, b.run(`document.querySelector('#events-rows tr').cells[0].textContent`))
		assert.Regexp(t, `^2 locks, 0 sessions, at \d\d:\d\d:\d\d$`, b.run(`document.getElementById('state').textContent`))
		assert.Equal(t, true, b.run(`document.querySelector('#servers-rows tr').cells[3].offsetHeight === document.querySelector('#servers-rows tr').cells[2].offsetHeight`))
	})

	t.Run("what is the same stays", func(t *testing.T) {
		var grown atomic.Bool
		serveTo(t, b, Config{Page: &Page{Look: func(ctx context.Context) (*survey.Survey, error) {
			locks := []survey.LockState{held("b", "1"), held("d", "1")}
			if grown.Load() {
				locks = append(locks, held("a", "2"), held("c", "2"))
			}
			return showing(locks...)(ctx)
		}}})
		b.await(`document.querySelectorAll('#locks-rows tr').length === 2`)
		b.run(`window.row = document.querySelectorAll('#locks-rows tr')[1]; row.querySelector('button').focus()`)
		grown.Store(true)
		b.await(`document.querySelectorAll('#locks-rows tr').length === 4`)
		assert.Equal(t, true, b.run(`document.querySelectorAll('#locks-rows tr')[3] === row`))
		assert.Equal(t, "d", b.run(`document.activeElement.textContent`))
		left := b.run(`row.cells[5].textContent`)
		b.await(fmt.Sprintf(`row.cells[5].textContent !== '%v'`, left))
		b.await(`document.getElementById('news').textContent === '4 locks, 2 before'`)
	})

	t.Run("a lock with a token, and how to release it", func(t *testing.T) {
		const token = "0123456789abcdef"
		serveTo(t, b, Config{Rights: tokens(token), Page: &Page{Look: showing(held("-it's a", "1"), held("b/1", "1"), held("c\n", "1"))}})
		b.await(`document.getElementById('login').open`)
		b.run(`document.getElementById('token').value = 'wrong'; document.querySelector('#login button').click()`)
		b.await(`document.getElementById('login').open && document.getElementById('login-why').textContent`)
		b.run(`document.getElementById('token').value = '` + token + `'; document.querySelector('#login button').click()`)
		b.await(`document.querySelectorAll('#locks-rows tr').length === 3`)
		for i, command := range []string{`redlock release --force -- '-it'\''s a'`, "redlock release --force b/1", ""} {
			b.run(fmt.Sprintf(`document.querySelectorAll('#locks-rows button')[%d].click()`, i))
			b.await(`document.querySelectorAll('#keys-rows tr').length === 1`)
			assert.Equal(t, command, b.run(`document.getElementById('command').textContent`))
			assert.Equal(t, command == "", b.run(`document.getElementById('force').hidden`))
			b.run(`document.getElementById('close').click()`)
			b.await(fmt.Sprintf(`document.activeElement === document.querySelectorAll('#locks-rows button')[%d]`, i))
		}
	})
}
