#!/usr/bin/env php
<?php
// Works under a lock of "redlock serve": lock.php NAME SECONDS. It exits with 75 if another has the lock,
// 69 if none is to be had, and 79 if the work was stopped: the lock was lost, or could not be kept.
// On a Mac that sleeps, PHP has no clock that counts that time, and work goes on too long.
class Problem extends Exception
{
    // kind is held, lost, no_quorum, ..., or no_answer.
    function __construct(public string $kind, string $detail)
    {
        parent::__construct("$kind: $detail");
    }
}

class Lock
{
    public int $fence;
    private $session = '', $answer = '', $poll = null, $asked = 0, $until = 0, $seen = 0; // times are milliseconds

    // $wish has the fields of POST /v1/locks.
    function __construct(string $name, array $wish = [])
    {
        $wish += ['name' => $name, 'fenced' => true, 'wait_ms' => 0];
        $owner = gethostname() . ' pid ' . getmypid();
        $this->session = $this->ask('POST', '/v1/sessions', ['owner' => $owner])['session'];
        $wanted = ['POST', '/v1/locks', $wish, bin2hex(random_bytes(16)), intdiv($wish['wait_ms'], 1000) + 5];
        try {
            $lease = $this->ask(...$wanted);
        } catch (Problem $e) {
            $e->kind == 'no_answer' || throw $e;
            $lease = $this->ask(...$wanted); // with the same key, asking again takes no second lock
        }
        $this->fence = $lease['fence'];
        $this->until = $this->asked + $lease['valid_for_ms'];
    }

    static function now(): float { return PHP_OS_FAMILY == 'Linux' ? (float) file_get_contents('/proc/uptime') * 1e3 : hrtime(true) / 1e6; }

    private function send(string $method, string $path, array $body = [], string $key = '')
    {
        $this->asked = self::now() - 10; // its step; the times in the answer count from here
        $at = 'unix://' . (getenv('REDLOCK_SOCKET') ?: '/run/redlock.sock');
        $socket = @stream_socket_client($at, $_, $error, 5) ?: throw new Problem('no_answer', "$at: $error");
        $text = json_encode((object) $body);
        fwrite($socket, "$method $path HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " . strlen($text) .
            "\r\nRedlock-Session: $this->session\r\nIdempotency-Key: $key\r\n\r\n$text");
        return $socket;
    }

    private function ask(string $method, string $path, array $body = [], string $key = '', int $timeout = 5): array
    {
        $socket = $this->send($method, $path, $body, $key);
        stream_set_timeout($socket, $timeout);
        return $this->read(stream_get_contents($socket));
    }

    private function read(string $answer): array
    {
        $status = (int) substr($answer, 9, 3);
        $body = $status == 204 ? [] : json_decode(strstr($answer, "\r\n\r\n") ?: '', true);
        $body ?? throw new Problem('no_answer', 'the answer was cut off, or none came');
        return $status < 400 ? $body : throw new Problem($body['kind'], $body['detail']);
    }

    // held is to be asked before each step of the work, some times a second: it also keeps the lock.
    function held(): bool
    {
        try {
            $this->poll ??= $this->send('GET', "/v1/session?seen=$this->seen&wait_ms=60000");
            stream_set_blocking($this->poll, false);
            $this->answer .= stream_get_contents($this->poll);
            if (feof($this->poll)) {
                [$answer, $this->answer, $this->poll] = [$this->answer, '', null];
                ['version' => $this->seen, 'leases' => [$lease], 'ending' => $ending] = $this->read($answer);
                $goes = !$ending && self::now() < $this->until; // what has ended stays so
                $this->until = $goes ? $this->asked + $lease['valid_for_ms'] : 0; // 0 ms: it is lost
            }
        } catch (Problem $e) {
            // Without an answer the lock is good until its end. Any other says that the session has ended.
            $this->until = $e->kind == 'no_answer' ? $this->until : 0;
        }
        return self::now() < $this->until;
    }

    function release(): void
    {
        $held = self::now() < $this->until;
        try {
            $this->ask('DELETE', '/v1/session');
        } catch (Problem $e) { // this is how a loss is told that came last, or the session ends by itself
            $held = $held && $e->kind == 'no_answer';
        }
        $held || throw new Problem('lost', 'the lock was lost, or could not be kept');
    }
}

$argc == 3 || exit(fwrite(STDERR, "usage: lock.php NAME SECONDS\n") ? 64 : 1);
try {
    $lock = new Lock($argv[1], ['wait_ms' => 3000]);
    echo "working with token $lock->fence\n"; // give it to what is written to
    for ($end = Lock::now() + $argv[2] * 1e3; ($held = $lock->held()) && Lock::now() < $end;) {
        usleep(50_000); // a step of the work
    }
    echo $held ? "done\n" : "stopped\n";
    $lock->release();
} catch (Problem $e) {
    fwrite(STDERR, "lock.php: {$e->getMessage()}\n");
    exit(['held' => 75, 'lost' => 79][$e->kind] ?? 69);
}
