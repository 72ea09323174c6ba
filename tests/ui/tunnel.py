"""tunnel.py: a way to a daemon as from home: so many bytes a second each way, and a delay."""
import asyncio
import threading
import urllib.parse

RATE = 20e6 / 8  # bytes a second each way, of all connections together
DELAY_S = 0.01  # each way
BURST_S = 0.02  # that a line which was idle, or late, catches up
CHUNK = 16384


class Line:
    """One direction: what is sent waits until the line is free, then takes its time."""

    def __init__(self):
        self.free, self.carried = 0.0, 0

    async def carry(self, reader, writer):
        """Passes on all that a reader gives, then the end."""
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(CHUNK):
                self.free = max(self.free, loop.time() - BURST_S) + len(data) / RATE
                self.carried += len(data)
                loop.call_at(self.free + DELAY_S, writer.write, data)
                await asyncio.sleep(self.free - loop.time())
            await asyncio.sleep(2 * DELAY_S)
        except OSError:
            pass  # one side has gone
        finally:
            writer.close()


class Tunnel:
    """A relay at `url`, in a thread, before the daemon at `target`; `up` and `down` are its lines."""

    def __init__(self, target):
        self.target = urllib.parse.urlsplit(target)
        self.up, self.down = Line(), Line()
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,))
        self.thread.start()
        started.wait()

    def _run(self, started):
        server = self.loop.run_until_complete(asyncio.start_server(self._relay, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        self.loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.close()

    async def _relay(self, reader, writer):
        back, on = await asyncio.open_connection(self.target.hostname, self.target.port)
        await asyncio.gather(self.up.carry(reader, on), self.down.carry(back, writer))

    def close(self):
        """Ends the relay."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
