#!/usr/bin/env php
<?php
// Works under a lock: hold.php NAME SECONDS. It exits with 79 if the lock is lost. It needs Linux, because
// hrtime() stands still while the machine sleeps, and PHP has no other clock in common with redlock.

// now returns milliseconds of the clock of redlock, which /proc/uptime shows in steps of 10 ms.
function now(): int
{
    return (int) ceil(1000 * (float) file_get_contents('/proc/uptime')) + 10;
}

class Lock
{
    public ?int $fence = null;
    private $hold, $pipes, $until = 0;

    function __construct(string $name)
    {
        $this->hold = proc_open(['redlock', 'hold', '--fenced', $name], [['pipe', 'r'], ['pipe', 'w'], STDERR], $this->pipes);
        $line = $this->read();
        $this->fence = $line['fence'] ?? exit($this->release()); // redlock has said why
        stream_set_blocking($this->pipes[1], false);
    }

    private function read(): ?array
    {
        $text = fgets($this->pipes[1]);
        $line = $text ? json_decode($text, true) : null;
        if ($line || feof($this->pipes[1])) {
            $goes = ($line['event'] ?? 'stop') !== 'stop';
            $this->until = $goes ? $line['until_ms'] : 0;
            if ($goes && $this->until - now() > $line['remaining_ms']) { // a container that shows another uptime
                fwrite(STDERR, "redlock has another clock than /proc/uptime\n");
                $this->until = 0;
            }
        }
        return $line;
    }

    // Call held before each step of the work.
    function held(): bool
    {
        while ($this->read());
        return now() < $this->until;
    }

    function release(): int
    {
        fclose($this->pipes[0]); // releases the lock, as the death of this program does
        return proc_close($this->hold);
    }
}

$argc == 3 or fwrite(STDERR, "usage: hold.php NAME SECONDS\n") and exit(64);
$lock = new Lock($argv[1]);
echo "working with token {$lock->fence}\n"; // give it to what is written to
for ($end = hrtime(true) + $argv[2] * 1e9; hrtime(true) < $end && ($held = $lock->held());) {
    usleep(50_000); // a step of the work
}
echo $held ? "done\n" : "stopped\n";
exit($lock->release());
