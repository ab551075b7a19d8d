// The page asks for /v1/survey, shows the answer, and asks for the next. Names and owners come from others:
// whatever is shown goes through textContent, by way of set.

const $ = (id) => document.getElementById(id);
const wanted = { filter: '', from: 0, name: '' };
const perPage = 100;
let version = 0;
let token = sessionStorage.getItem('token') ?? '';
let paused = false;
let asking = new AbortController();
let shown; // the last answer

// ---- asking

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = 'Bearer ' + token;
  const answer = await fetch(path, { ...options, headers, cache: 'no-store' });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.detail ?? answer.statusText), { status: answer.status });
  return body;
}

// askAnew drops the question that is being asked, since something else is wanted now.
function askAnew() {
  version = 0;
  asking.abort();
}

async function follow() {
  for (;;) {
    await untilLooking();
    asking = new AbortController();
    const query = new URLSearchParams({ filter: wanted.filter, from: wanted.from, count: perPage, name: wanted.name });
    if (version) {
      query.set('seen', version);
      query.set('wait_ms', 30_000);
    }
    try {
      const answer = await ask('/v1/survey?' + query, { signal: asking.signal });
      version = answer.version;
      trouble(answer.error && 'The servers could not be looked at: ' + answer.error);
      show(answer);
    } catch (error) {
      if (error.name === 'AbortError') continue;
      if (error.status === 401) {
        await login(token && 'This token is not known.');
        continue;
      }
      trouble('There is no answer, and what is shown is old: ' + error.message);
      version = 0;
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
}

// untilLooking waits while nobody looks, so that a page in the background costs nothing.
function untilLooking() {
  return new Promise((done) => {
    const look = () => {
      if (paused || document.hidden) return;
      document.removeEventListener('visibilitychange', look);
      $('pause').removeEventListener('click', look);
      done();
    };
    document.addEventListener('visibilitychange', look);
    $('pause').addEventListener('click', look);
    look();
  });
}

function login(why) {
  set($('login-why'), why || '');
  $('login').showModal();
  return new Promise((done) => {
    $('login-form').onsubmit = (event) => {
      event.preventDefault();
      token = $('token').value;
      sessionStorage.setItem('token', token);
      $('token').value = '';
      $('login').close();
      done();
    };
    $('login').oncancel = (event) => event.preventDefault(); // there is nothing to see without it
  });
}

function trouble(text) {
  set($('trouble'), text || '');
  $('trouble').hidden = !text;
}

// ---- showing

// plain makes characters visible that could hide or turn round others.
const plain = (text) => String(text).replace(/[\p{C}\u2028\u2029]/gu, (c) => '\\u{' + c.codePointAt(0).toString(16) + '}');

function set(node, text, look = '') {
  text = plain(text);
  if (node.textContent !== text) node.textContent = text;
  if (node.className !== look) node.className = look;
}

// A table shows rows, of which each has a key. What is the same stays, and so does the focus.
function table(body, columns) {
  const headings = [...body.closest('table').querySelectorAll('th')].map((th) => th.textContent);
  let before = 0;
  return (rows) => {
    const old = new Map([...body.rows].map((row) => [row.key, row]));
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    const place = focused ? [...body.rows].indexOf(focused.closest('tr')) : 0;
    let next = body.firstElementChild;
    for (const data of rows) {
      let row = old.get(data.key);
      old.delete(data.key);
      if (!row) {
        row = document.createElement('tr');
        row.key = data.key;
        row.role = 'row'; // which a narrow page's display takes away in some browsers
        for (const heading of headings) {
          const cell = row.insertCell();
          cell.role = 'cell';
          cell.dataset.heading = heading;
        }
        if (before) row.className = 'new';
      }
      columns.forEach((fill, i) => fill(row.cells[i], data));
      if (row === next) next = next.nextElementSibling;
      else body.insertBefore(row, next);
    }
    for (const row of old.values()) {
      for (const cell of row.cells) clocks.delete(cell);
      row.remove();
    }
    before = rows.length;
    if (focused && focused !== document.activeElement) {
      const stays = focused.isConnected ? focused : body.rows[Math.min(place, body.rows.length - 1)]?.querySelector('button');
      (stays ?? $('filter')).focus({ preventScroll: true });
    }
  };
}

// text is a column.
const text = (of, look = () => '') => (cell, row) => {
  const value = of(row) ?? '';
  set(cell, value, look(row) + (value === '' ? ' none' : ''));
};

// name is a column with a button, which shows all about a lock.
const name = (of) => (cell, row) => {
  const button = cell.firstElementChild ?? cell.appendChild(document.createElement('button'));
  button.type = 'button';
  button.hidden = !row[of];
  button.onclick = () => open(row[of], button);
  set(button, (row[of] ?? '') + (row.permit === undefined ? '' : ', permit ' + row.permit), 'name');
  cell.className = row[of] ? '' : 'none';
};

// left is a column with a time that runs out.
const clocks = new Map(); // when, by the cells that show it
const left = (cell, row) => {
  clocks.delete(cell);
  if (row.left_ms === undefined || row.left_ms < 0) return set(cell, row.left_ms < 0 ? 'for ever' : '', row.left_ms < 0 ? 'bad' : 'none');
  clocks.set(cell, performance.now() + row.left_ms - shown.age_ms);
  tick(cell);
};

function tick(cell) {
  set(cell, span(Math.max(0, clocks.get(cell) - performance.now())), 'short');
}

// micro is a short time, of which there are microseconds.
function micro(us) {
  if (us < 1000) return us + ' µs';
  if (us < 10_000) return (us / 1000).toFixed(1) + ' ms';
  return us < 10_000_000 ? Math.round(us / 1000) + ' ms' : span(us / 1000);
}

function span(ms) {
  if (ms < 60_000) return (ms / 1000).toFixed(1) + ' s';
  if (ms < 3_600_000) return Math.floor(ms / 60_000) + ' min ' + Math.floor((ms % 60_000) / 1000) + ' s';
  return Math.floor(ms / 3_600_000) + ' h ' + Math.floor((ms % 3_600_000) / 60_000) + ' min';
}

// looks are the classes of words.
const looks = {
  held: 'good', holds: 'good', partial: 'odd', split: 'odd', unknown: 'odd', stuck: 'bad', lost: 'bad',
  well: 'good', slow: 'odd', 'in quarantine': 'odd', unfit: 'bad', down: 'bad',
};
const look = (word) => looks[word] ?? '';
const hours = { hourCycle: 'h23' }; // from 0 to 23, and the rest as the reader's locale has it
const time = (event) => {
  const at = new Date(event.time);
  return at.toDateString() === new Date().toDateString() ? at.toLocaleTimeString([], hours) : at.toLocaleString([], hours);
};
const what = (event) => event.what + (event.text ? ': ' + event.text : '');
const count = (n, word) => n + ' ' + word + (n === 1 ? '' : 's');
const first = (members, of) => members.first.map(of).join(', ') + (members.count > members.first.length ? ', …' : '');
const holder = (row) => {
  if (row.kind !== 'shared') return row.owner ?? row.holder;
  return row.readers ? count(row.readers.count, 'reader') + ': ' + first(row.readers, (r) => r.owner || r.id) : 'readers';
};
const inGroup = (row) => row.group ? ', in group ' + row.group : '';
const server = (row) => row.server + (row.group ? ' (' + row.group + ')' : '');

// health is a column: how a server is in a word, with what is worth knowing behind it. Warnings are below.
const health = (cell, row) => {
  const all = cell.firstElementChild ?? cell.appendChild(document.createElement('span'));
  if (!all.firstChild) all.append(document.createElement('span'), ' ', document.createElement('small'));
  set(all.firstChild, row.health, look(row.health) + ' short');
  const notes = row.error ? [] : row.findings.filter((f) => f.severity === 'note' && f.check !== 'latency'); // which has a column
  set(all.lastChild, notes.map((f) => f.found).join('; '));
  cell.className = row.health ? '' : 'none';
};

// clock says how a server's clock differs from that of this process.
function clock(timing) {
  const within = '±' + micro(timing.within_us);
  const apart = Math.abs(timing.ahead_us);
  return apart <= timing.within_us ? within : micro(apart) + (timing.ahead_us > 0 ? ' ahead, ' : ' behind, ') + within;
}

const lease = (l) => l.names.join(' + ') + (l.kind === 'exclusive' ? '' : ' (' + l.kind + ')') + (l.lost ? ' (lost)' : '');

const showLocks = table($('locks-rows'), [
  name('name'), text((row) => row.state, (row) => look(row.state) + ' short'), text((row) => (holder(row) ?? '') + inGroup(row)),
  text((row) => row.kind, () => 'short'), text((row) => row.votes + ' of ' + row.servers, () => 'short'), left,
  text((row) => row.waiting || ''), text((row) => row.fence, () => 'short'),
]);
const showServers = table($('servers-rows'), [
  text(server), health,
  text((row) => row.timing && micro(row.timing.trip_us) + ', at most ' + micro(row.timing.longest_us), () => 'short'),
  text((row) => row.timing && clock(row.timing), () => 'short'),
]);
const showSessions = table($('sessions-rows'), [
  text((row) => row.owner || 'without a name'), text((row) => span(row.ttl_ms), () => 'short'),
  text((row) => row.leases.map(lease).join(', ') + (row.total > row.leases.length ? ', and ' + (row.total - row.leases.length) + ' more' : '')),
  text((row) => row.waits.join(', ')),
]);
const showEvents = table($('events-rows'), [text(time, () => 'short'), name('lock'), text(what, (e) => look(e.what)), text((e) => e.by)]);
const showKeys = table($('keys-rows'), [
  text((row) => row.server + row.of), text((row) => row.error || row.state, (row) => look(row.error ? 'down' : row.state)),
  text((row) => row.holder, () => 'code'), left,
]);
const showReaders = table($('readers-rows'), [text((row) => row.owner), text((row) => row.id, () => 'code'), text((row) => row.votes + ' of ' + row.servers), left]);
const showClients = table($('clients-rows'), [
  text((row) => row.owner || 'without a name'), text((row) => span(row.waited_ms ?? 0)), text((row) => span(row.left_ms)),
]);
const showWaiters = table($('waiters-rows'), [
  text((row) => row.place), text((row) => row.id, () => 'code'), text((row) => span(row.waited_ms ?? 0)),
]);
const showHistory = table($('history-rows'), [text(time, () => 'short'), text(what, (e) => look(e.what)), text((e) => e.by)]);

const keyed = (rows, key) => rows.map((row, i) => ({ ...row, key: key(row, i) }));
const byNumber = (events) => keyed(events, (e) => e.number);

function show(answer) {
  shown = answer;
  wanted.from = answer.from;
  const at = new Date(Date.now() - answer.age_ms).toLocaleTimeString([], hours);
  set($('state'), count(answer.total, 'lock') + (answer.cut_off ? ' and more' : '') + ', ' + count(answer.sessions.total, 'session') + ', at ' + at);
  showLocks(keyed(answer.locks, (l) => [l.name, l.permit, l.group].join('\0')));
  $('no-locks').hidden = answer.locks.length > 0;
  set($('no-locks'), wanted.filter ? 'No lock matches.' : 'No lock is held.', 'empty');
  set($('count'), wanted.filter ? answer.matching + ' of ' + answer.total : '');
  $('pages').hidden = answer.matching <= perPage;
  set($('where'), answer.from + 1 + ' to ' + (answer.from + answer.locks.length) + ' of ' + answer.matching);
  $('before').disabled = answer.from === 0;
  $('after').disabled = answer.from + answer.locks.length >= answer.matching;

  showServers(keyed(answer.servers, server));
  showFindings(answer.servers);
  showSessions(keyed(answer.sessions.sessions, (s, i) => s.owner + '\0' + i));
  $('no-sessions').hidden = answer.sessions.total > 0;
  showEvents(byNumber(answer.events.slice(0, 50)));
  $('no-events').hidden = answer.events.length > 0;
  if (answer.lock && answer.lock.name === wanted.name) showLock(answer.lock);
  tell(answer);
}

// showFindings lists what is not as it should be.
function showFindings(servers) {
  const list = new Map();
  for (const s of servers) {
    if (s.error) list.set(server(s) + ' does not answer: ' + s.error, '');
    for (const f of s.findings ?? []) {
      if (f.severity !== 'warning' && f.severity !== 'fatal' || s.error && f.check === 'reachable') continue;
      const line = f.severity + ': ' + f.found + (f.means ? ': ' + f.means : '');
      list.set(line, [...(list.get(line) || []), server(s)]);
    }
  }
  const lines = [...list].map(([line, on]) => line + (on ? ' (' + on.join(', ') + ')' : ''));
  if (lines.join('\n') === $('findings').of) return;
  $('findings').of = lines.join('\n');
  $('findings').replaceChildren(...lines.map((line) => {
    const item = document.createElement('li');
    set(item, line);
    return item;
  }));
}

// tell says to a screen reader what has changed, in one sentence and not too often.
let toldAt = -Infinity;
let told; // the answer that was told of last
function tell(answer) {
  told ??= answer;
  if (performance.now() - toldAt < 10_000) return;
  const changes = [];
  for (const s of answer.servers) {
    const was = told.servers.find((o) => server(o) === server(s));
    if (was && !was.error !== !s.error) changes.push(server(s) + (s.error ? ' does not answer' : ' answers again'));
  }
  if (told.total !== answer.total) changes.push(count(answer.total, 'lock') + ', ' + told.total + ' before');
  if (!changes.length) return;
  toldAt = performance.now();
  told = answer;
  set($('news'), changes.join('. '), 'unseen');
}

// ---- one lock

let opener;
function open(lock, button) {
  opener = button; // not the focus: a click gives a button none in some browsers
  wanted.name = lock;
  set($('lock-title'), lock);
  showLock({ states: [], events: [] });
  $('lock-gone').hidden = true;
  $('lock').showModal();
  askAnew();
}

function showLock(lock) {
  const title = (s) => (s.permit === undefined ? '' : ', permit ' + s.permit) + (s.group ? ', group ' + s.group : '');
  showKeys(lock.states.flatMap((s) => keyed(s.keys ?? [], (k) => k.server + title(s)).map((k) => ({ ...k, of: title(s) }))));
  const members = (of) => lock.states.flatMap((s) => keyed(s[of]?.first ?? [], (m, i) => m.id ?? i).map((m, i) => ({ ...m, place: i + 1, servers: s.servers })));
  showReaders(members('readers'));
  $('readers').hidden = members('readers').length === 0;
  showClients(members('clients'));
  $('clients').hidden = members('clients').length === 0;
  showWaiters(members('waiters'));
  $('waiters').hidden = members('waiters').length === 0;
  showHistory(byNumber(lock.events));
  $('no-history').hidden = lock.events.length > 0;
  $('lock-gone').hidden = lock.states.length > 0;
  set($('command'), release(wanted.name), 'code');
  $('force').hidden = !$('command').textContent || !lock.states.some((s) => s.holder);
}

// release is the command for a shell that releases a lock, or nothing if its name cannot be typed.
function release(lock) {
  if (plain(lock) !== lock || lock.startsWith('"')) return ''; // a name that is no text is shown in quotes
  const word = /^[\w.,:/@%+=-]+$/.test(lock) ? lock : "'" + lock.replaceAll("'", "'\\''") + "'";
  return 'redlock release --force ' + (lock.startsWith('-') ? '-- ' : '') + word;
}

$('copy').onclick = () => navigator.clipboard.writeText($('command').textContent);
$('close').onclick = () => $('lock').close();
$('lock').onclose = () => {
  wanted.name = '';
  (opener?.isConnected ? opener : $('filter')).focus();
};

// ---- what people want

let typing;
$('filter').oninput = () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    wanted.filter = $('filter').value;
    wanted.from = 0;
    askAnew();
  }, 200);
};
function turn(by) {
  wanted.from = Math.max(0, wanted.from + by);
  askAnew();
}
$('before').onclick = () => turn(-perPage);
$('after').onclick = () => turn(perPage);
$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').setAttribute('aria-pressed', paused);
  set($('pause'), paused ? 'Go on' : 'Pause');
  if (!paused) version = 0;
}, { capture: true }); // before untilLooking asks

setInterval(() => {
  if (!paused && !document.hidden) for (const cell of clocks.keys()) tick(cell);
}, 200);
follow();
