#!/usr/bin/env ruby
# Works under a lock of "redlock serve": lock.rb NAME SECONDS. It exits with 75 if another has the lock,
# 69 if none is to be had, and 79 if the work was stopped: the lock was lost, or could not be kept.
require "json"
require "securerandom"
require "socket"
require "timeout"

class Lock
  class Problem < StandardError
    attr_reader :kind # held, lost, no_quorum, ...

    def initialize(kind, detail)
      super("#{kind}: #{detail}")
      @kind = kind
    end
  end
  # It counts the time for which the machine sleeps, too.
  CLOCK = defined?(Process::CLOCK_BOOTTIME) ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC
  NO_ANSWER = [SystemCallError, IOError, JSON::ParserError, Timeout::Error]

  attr_reader :fence

  # open runs a block under the lock. Its arguments are the fields of POST /v1/locks.
  def self.open(name, **wish)
    lock = new(name, **wish)
    begin
      yield lock
    ensure
      lock.release
    end
  end

  def initialize(name, **wish)
    wish = { name: name, fenced: true, wait_ms: 0, **wish }
    _, made = ask("POST", "/v1/sessions", { owner: "#{Socket.gethostname} pid #{Process.pid}" })
    @session = made["session"]
    retrying = { within: wish[:wait_ms] / 1000.0 + 5, key: SecureRandom.uuid }
    begin
      asked, lease = ask("POST", "/v1/locks", wish, **retrying)
    rescue *NO_ANSWER # with the same key, asking again takes no second lock
      asked, lease = ask("POST", "/v1/locks", wish, **retrying)
    end
    @fence, @until = lease["fence"], asked + lease["valid_for_ms"] / 1000.0
    Thread.new { follow }
  end

  def held? = now < @until

  def release
    held, @until = held?, 0
    begin
      ask("DELETE", "/v1/session")
    rescue *NO_ANSWER # the session ends by itself
    rescue Problem # this is how a loss is told that came last
      held = false
    end
    raise Problem.new("lost", "the lock was lost, or could not be kept") unless held
  end

  private

  def now = Process.clock_gettime(CLOCK)

  # ask returns an answer behind when it was asked for, from when the times in it count.
  def ask(method, path, body = {}, within: 5, key: "")
    asked, body = now, JSON.generate(body)
    head = ["#{method} #{path} HTTP/1.0", "Content-Type: application/json", "Content-Length: #{body.bytesize}",
            "Redlock-Session: #{@session}", "Idempotency-Key: #{key}"]
    text = Timeout.timeout(within) do
      UNIXSocket.open(ENV.fetch("REDLOCK_SOCKET", "/run/redlock.sock")) do |s|
        s.write(head.join("\r\n"), "\r\n\r\n", body)
        s.read
      end
    end
    status, text = text[/\A\S+ (\d+)/, 1] || raise(IOError, "no answer"), text.split("\r\n\r\n", 2)[1]
    answer = status == "204" ? {} : JSON.parse(text)
    raise Problem.new(answer["kind"], answer["detail"]) if status.to_i >= 400
    [asked, answer]
  end

  def follow
    seen = 0
    while (left = @until - now) > 0
      begin
        asked, state = ask("GET", "/v1/session?seen=#{seen}&wait_ms=60000", within: left)
        lease, seen = state["leases"][0], state["version"]
        goes = lease && !state["ending"]
        @until = goes ? asked + lease["valid_for_ms"] / 1000.0 : 0 # 0 ms: it is lost
      rescue Problem # the session has ended
        @until = 0
      rescue *NO_ANSWER
        sleep 0.1 # the lock is good until its end, whether redlock answers or not
      end
    end
  end
end

ARGV.size == 2 or warn("usage: lock.rb NAME SECONDS") || exit(64)
$stdout.sync = true
begin
  Lock.open(ARGV[0], wait_ms: 3000) do |lock|
    puts "working with token #{lock.fence}" # give it to what is written to
    steps = (ARGV[1].to_f / 0.05).ceil
    puts steps.times.all? { lock.held? && sleep(0.05) } && lock.held? ? "done" : "stopped" # the work
  end
rescue Lock::Problem, *Lock::NO_ANSWER => e
  warn "lock.rb: #{e.message}"
  exit({ "held" => 75, "lost" => 79 }.fetch(e.respond_to?(:kind) ? e.kind : "", 69))
end
