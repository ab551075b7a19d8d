// Works under a lock of "redlock serve": java Lock.java NAME SECONDS. It exits with 75 if another has the
// lock, 69 if none is to be had, and 79 if the work was stopped: the lock was lost, or could not be kept.
import java.io.*;
import java.lang.annotation.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.util.UUID;
import java.util.concurrent.*;
import java.util.regex.*;
import static java.nio.charset.StandardCharsets.UTF_8;

/** try (var lock = new Lock("nightly", 3000)) { ... } */
class Lock implements AutoCloseable {
    static class Problem extends IOException {
        final String kind; // held, lost, no_quorum, ...
        Problem(String kind, String detail) { super(kind + ": " + detail); this.kind = kind; }
    }

    record Answer(long asked, String text) { // the times in it count from when it was asked for
        String get(String field) { // the first of that name; a program would have a library for JSON
            Matcher m = Pattern.compile('"' + field + "\":(?:\"((?:\\\\.|[^\"\\\\])*)\"|([^,}\\]]*))").matcher(text);
            return !m.find() ? "" : m.group(1) != null ? m.group(1) : m.group(2);
        }
        long until() { return asked + Long.parseLong(get("valid_for_ms")); }
    }

    final long fence;
    private String session = "";
    private volatile long until; // in milliseconds of now()

    static final java.nio.file.Path UPTIME = java.nio.file.Path.of("/proc/uptime");

    // Milliseconds of a clock that counts the time for which the machine sleeps, too. Java has none but on
    // Linux and Windows: on a Mac that sleeps, nanoTime stands still, and the work goes on too long.
    static long now() {
        try {
            String up = java.nio.file.Files.readString(UPTIME);
            return Long.parseLong(up.substring(0, up.indexOf(' ')).replace(".", "")) * 10;
        } catch (java.nio.file.NoSuchFileException notLinux) {
            return System.nanoTime() / 1_000_000;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    Lock(String name, long waitMs) throws IOException {
        String owner = java.net.InetAddress.getLocalHost().getHostName() + " pid " + ProcessHandle.current().pid();
        session = ask("POST", "/v1/sessions", "{\"owner\":\"" + owner + "\"}", 5000, "").get("session");
        String wanted = "{\"name\":\"" + name.replaceAll("[\"\\\\]", "\\\\$0") + "\",\"fenced\":true,\"wait_ms\":" + waitMs + "}";
        String key = UUID.randomUUID().toString(); // with the same key, asking again takes no second lock
        Answer lease;
        try {
            lease = ask("POST", "/v1/locks", wanted, waitMs + 5000, key);
        } catch (IOException e) {
            if (e instanceof Problem) throw e;
            lease = ask("POST", "/v1/locks", wanted, waitMs + 5000, key);
        }
        fence = Long.parseLong(lease.get("fence"));
        until = lease.until();
        Thread follower = new Thread(this::follow);
        follower.setDaemon(true);
        follower.start();
    }

    private Answer ask(String method, String path, String body, long timeout, String key) throws IOException {
        long asked = now() - 10; // the step of its clock
        String at = System.getenv().getOrDefault("REDLOCK_SOCKET", "/run/redlock.sock");
        try (SocketChannel socket = SocketChannel.open(java.net.UnixDomainSocketAddress.of(at))) {
            var late = CompletableFuture.delayedExecutor(timeout, TimeUnit.MILLISECONDS);
            late.execute(() -> { try { socket.close(); } catch (IOException e) { } });
            byte[] text = body.getBytes(UTF_8);
            String head = method + " " + path + " HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " + text.length
                + "\r\nRedlock-Session: " + session + "\r\nIdempotency-Key: " + key + "\r\n\r\n";
            socket.write(new ByteBuffer[] {ByteBuffer.wrap(head.getBytes(UTF_8)), ByteBuffer.wrap(text)});
            String got = new String(Channels.newInputStream(socket).readAllBytes(), UTF_8).stripTrailing();
            Answer answer = new Answer(asked, got);
            if (!got.endsWith("}") && !got.startsWith("HTTP/1.0 20")) throw new IOException("the answer was cut off");
            if (got.charAt(9) >= '4') throw new Problem(answer.get("kind"), answer.get("detail"));
            return answer;
        }
    }

    private void follow() {
        String seen = "0";
        for (long left; (left = until - now()) > 0; ) {
            try {
                Answer state = ask("GET", "/v1/session?seen=" + seen + "&wait_ms=60000", "", left, "");
                until = state.get("ending").equals("false") ? state.until() : now(); // 0 ms: it is lost
                seen = state.get("version");
            } catch (Problem e) { // the session has ended
                until = now();
            } catch (IOException e) { // the lock is good until its end, whether redlock answers or not
                try { Thread.sleep(100); } catch (InterruptedException stop) { return; }
            }
        }
    }

    boolean held() { return now() - until < 0; }

    @Override public void close() throws IOException {
        boolean held = held();
        until = now();
        try {
            ask("DELETE", "/v1/session", "", 5000, "");
        } catch (IOException e) { // this is how a loss is told that came last, or the session ends by itself
            held &= !(e instanceof Problem);
        }
        if (!held) throw new Problem("lost", "the lock was lost, or could not be kept");
    }

    /** Has a method of an interface run under a lock, whose name may have {0} for the first argument. */
    @Retention(RetentionPolicy.RUNTIME) @Target(ElementType.METHOD)
    @interface RedLocked { String name(); long waitMs() default 0; }

    static final ThreadLocal<Lock> CURRENT = new ThreadLocal<>(); // that of the method that runs

    static <T> T locking(Class<T> type, T target) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, args) -> {
            RedLocked wanted = method.getAnnotation(RedLocked.class);
            if (wanted == null) return method.invoke(target, args);
            String name = wanted.name();
            for (int i = 0; args != null && i < args.length; i++) name = name.replace("{" + i + "}", String.valueOf(args[i]));
            Lock outer = CURRENT.get();
            try (Lock lock = new Lock(name, wanted.waitMs())) {
                CURRENT.set(lock);
                return method.invoke(target, args);
            } catch (InvocationTargetException e) {
                throw e.getCause();
            } finally {
                CURRENT.set(outer);
            }
        }));
    }

    interface Job {
        @RedLocked(name = "{0}", waitMs = 3000) void run(String name, double seconds) throws IOException;
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 2) {
            System.err.println("usage: java Lock.java NAME SECONDS");
            System.exit(64);
        }
        Job job = locking(Job.class, (name, seconds) -> {
            Lock lock = CURRENT.get();
            System.out.println("working with token " + lock.fence); // give it to what is written to
            for (long end = now() + (long) (seconds * 1000); lock.held() && now() < end; ) {
                try { Thread.sleep(50); } catch (InterruptedException stop) { break; } // a step of the work
            }
            System.out.println(lock.held() ? "done" : "stopped");
        });
        try {
            job.run(args[0], Double.parseDouble(args[1]));
        } catch (IOException e) {
            System.err.println("Lock.java: " + e.getMessage());
            System.exit(!(e instanceof Problem p) ? 69 : p.kind.equals("held") ? 75 : p.kind.equals("lost") ? 79 : 69);
        }
    }
}
