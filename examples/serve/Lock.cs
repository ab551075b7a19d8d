// Works under a lock of "redlock serve": dotnet run Lock.cs NAME SECONDS, from .NET 10. It exits with 75 if
// another has the lock, 69 if none is to be had, and 79 if the work was stopped: the lock was lost, or
// could not be kept. No test runs this one.
using System.Net.Http.Json;
using System.Net.Sockets;
using System.Reflection;
using System.Text.Json;

if (args.Length != 2) { Console.Error.WriteLine("usage: dotnet run Lock.cs NAME SECONDS"); return 64; }
try
{
    await RedLocked<IJob>.Of(new Job()).Run(args[0], double.Parse(args[1]), default);
    return 0;
}
catch (Exception e) when (e is Problem or HttpRequestException or OperationCanceledException)
{
    Console.Error.WriteLine($"Lock.cs: {e.Message}");
    return (e as Problem)?.Kind switch { "held" => 75, "lost" => 79, _ => 69 };
}

interface IJob
{
    [RedLock("{name}", WaitMs = 3000)] Task Run(string name, double seconds, CancellationToken lost);
}

class Job : IJob
{
    public async Task Run(string name, double seconds, CancellationToken lost)
    {
        Console.WriteLine($"working with token {Lock.Current.Value!.Fence}"); // give it to what is written to
        try { await Task.Delay(TimeSpan.FromSeconds(seconds), lost); } // the work
        catch (OperationCanceledException) { }
        Console.WriteLine(Lock.Current.Value.Held ? "done" : "stopped");
    }
}

class Problem(string kind, string detail) : Exception($"{kind}: {detail}")
{
    public string Kind => kind; // held, lost, no_quorum, ...
}

/// await using var l = await Lock.Acquire("nightly", waitMs: 3000);
class Lock : IAsyncDisposable
{
    static readonly HttpClient client = new(new SocketsHttpHandler { ConnectCallback = async (_, cancel) =>
    {
        var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
        var at = Environment.GetEnvironmentVariable("REDLOCK_SOCKET") ?? "/run/redlock.sock";
        await socket.ConnectAsync(new UnixDomainSocketEndPoint(at), cancel);
        return new NetworkStream(socket, ownsSocket: true);
    } }) { BaseAddress = new Uri("http://redlock"), Timeout = Timeout.InfiniteTimeSpan };
    // Milliseconds of a clock that counts the time for which the machine sleeps, too. .NET has none but on Linux
    // and Windows: on a Mac that sleeps, TickCount64 stands still, and the work goes on too long.
    static long Now => OperatingSystem.IsLinux()
        ? long.Parse(File.ReadAllText("/proc/uptime").Split(' ')[0].Replace(".", "")) * 10 : Environment.TickCount64;
    public static readonly AsyncLocal<Lock?> Current = new(); // that of the method that runs
    string session = "";
    long until; // of Now
    readonly CancellationTokenSource lost = new();
    public CancellationToken Lost => lost.Token;
    public long Fence { get; private set; }
    public bool Held => Now < Volatile.Read(ref until);

    public static async Task<Lock> Acquire(string name, int waitMs = 0)
    {
        var l = new Lock();
        var owner = $"{Environment.MachineName} pid {Environment.ProcessId}";
        l.session = (await l.Ask("POST", "/v1/sessions", 5000, new { owner })).Json.GetProperty("session").GetString()!;
        var key = Guid.NewGuid().ToString(); // with the same key, asking again takes no second lock
        var ask = () => l.Ask("POST", "/v1/locks", waitMs + 5000, new { name, fenced = true, wait_ms = waitMs }, key);
        (long Asked, JsonElement Json) lease;
        try { lease = await ask(); }
        catch (Exception e) when (e is not Problem) { lease = await ask(); }
        l.Fence = lease.Json.GetProperty("fence").GetInt64();
        l.Keep(lease.Asked + lease.Json.GetProperty("valid_for_ms").GetInt64());
        _ = l.Follow();
        _ = l.Watch();
        return l;
    }

    // The times in an answer count from when it was asked for.
    async Task<(long Asked, JsonElement Json)> Ask(string method, string path, long timeout, object? body = null, string key = "")
    {
        var asked = Now - 16; // the largest step of its clocks
        using var late = new CancellationTokenSource(TimeSpan.FromMilliseconds(timeout));
        using var request = new HttpRequestMessage(new HttpMethod(method), path);
        request.Headers.ConnectionClose = true; // a daemon that ends closes a kept one just when it is used again
        request.Headers.TryAddWithoutValidation("Redlock-Session", session);
        request.Headers.TryAddWithoutValidation("Idempotency-Key", key);
        if (body != null) request.Content = JsonContent.Create(body);
        using var response = await client.SendAsync(request, late.Token);
        var text = await response.Content.ReadAsStringAsync(late.Token);
        var json = JsonDocument.Parse(text == "" ? "{}" : text).RootElement;
        if (!response.IsSuccessStatusCode) throw new Problem(json.GetProperty("kind").GetString()!, json.GetProperty("detail").GetString()!);
        return (asked, json);
    }

    void Keep(long end) => Volatile.Write(ref until, end);

    async Task Watch() { while (Held) await Task.Delay(100); lost.Cancel(); } // timers stand still in sleep, too

    async Task Follow()
    {
        for (long seen = 0, left; (left = until - Now) > 0 && !lost.IsCancellationRequested;)
        {
            try
            {
                var (asked, state) = await Ask("GET", $"/v1/session?seen={seen}&wait_ms=60000", left);
                var lease = state.GetProperty("leases")[0];
                seen = state.GetProperty("version").GetInt64();
                var goes = Held && !state.GetProperty("ending").GetBoolean(); // and 0 ms: it is lost
                Keep(goes ? asked + lease.GetProperty("valid_for_ms").GetInt64() : 0);
            }
            catch (Exception e) when (e is Problem or IndexOutOfRangeException) { Keep(0); } // the session has ended
            catch (Exception) { await Task.Delay(100); } // the lock is good until its end, whether redlock answers or not
        }
    }

    public async ValueTask DisposeAsync()
    {
        var held = Held;
        Keep(0);
        try { await Ask("DELETE", "/v1/session", 5000); }
        catch (Exception e) { held &= e is not Problem; } // how a loss is told that came last, or the session ends by itself
        if (!held) throw new Problem("lost", "the lock was lost, or could not be kept");
    }
}

/// Has a method of an interface, which returns a Task, run under a lock whose name has arguments of it.
[AttributeUsage(AttributeTargets.Method)]
class RedLockAttribute(string name) : Attribute
{
    public string Name => name;
    public int WaitMs { get; init; }
}

/// The methods of T that have a [RedLock] get Lost of their lock for a CancellationToken.
class RedLocked<T> : DispatchProxy where T : class
{
    T target = null!;

    public static T Of(T target)
    {
        var proxy = Create<T, RedLocked<T>>();
        ((RedLocked<T>)(object)proxy).target = target;
        return proxy;
    }

    protected override object? Invoke(MethodInfo? method, object?[]? args) =>
        method!.GetCustomAttribute<RedLockAttribute>() is { } l ? Under(l, method, args ?? []) : method.Invoke(target, args);

    async Task Under(RedLockAttribute wanted, MethodInfo method, object?[] args)
    {
        var name = method.GetParameters().Aggregate(wanted.Name, (text, p) => text.Replace($"{{{p.Name}}}", $"{args[p.Position]}"));
        await using var l = await Lock.Acquire(name, wanted.WaitMs);
        Lock.Current.Value = l;
        await (Task)method.Invoke(target, args.Select(a => a is CancellationToken ? l.Lost : a).ToArray())!;
    }
}
