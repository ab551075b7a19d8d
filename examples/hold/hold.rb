#!/usr/bin/env ruby
# Works under a lock: hold.rb NAME SECONDS. It exits with 79 if the lock is lost.
require "json"

class Lock
  attr_reader :fence

  def initialize(name)
    @hold = IO.popen(["redlock", "hold", "--fenced", name], "r+")
    @until = 0
    @fence = read["fence"] or exit(release) # redlock has said why
    Thread.new { nil while read.any? }
  end

  # Call it before each step of the work.
  def held? = now < @until

  def release
    @hold.close_write # releases the lock, as the death of this program does
    Process.wait(@hold.pid)
    $?.exitstatus
  end

  private

  # The clock of redlock: on Linux CLOCK_BOOTTIME, which counts the sleep of the machine, too.
  CLOCK = defined?(Process::CLOCK_BOOTTIME) ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC

  def now = Process.clock_gettime(CLOCK, :millisecond)

  def read
    line = JSON.parse(@hold.gets || "{}")
    @until = line.fetch("event", "stop") == "stop" ? 0 : line["until_ms"]
    line
  end
end

unless ARGV.size == 2
  warn "usage: hold.rb NAME SECONDS"
  exit 64
end
lock = Lock.new(ARGV[0])
$stdout.sync = true
puts "working with token #{lock.fence}" # give it to what is written to
steps = (ARGV[1].to_f / 0.05).ceil
held = steps.times.all? { lock.held? && sleep(0.05) } # the work, in steps
puts held ? "done" : "stopped"
exit(lock.release)
