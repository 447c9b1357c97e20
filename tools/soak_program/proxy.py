"""A TCP proxy between an agent and the coordinator's port: delay, jitter, a rate, stalls, resets and silence.

What goes through a connection keeps its order, as TCP gives no other; two connections may overtake each other.
"""

import asyncio
import random
import socket
import struct
import threading

CHUNK = 16 * 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset


class Weather:
    """What the proxy does to bytes. Plain values, read by its thread for each piece."""

    def __init__(self):
        self.delay_s = 0.0
        self.jitter_s = 0.0
        self.bytes_a_second = 0  # 0: no limit
        self.is_stalled = False  # takes connections and bytes, and carries nothing
        self.refuses = False  # resets whoever connects


class Proxy:
    """Forwards 127.0.0.1:port to 127.0.0.1:target on a thread of its own, until close()."""

    def __init__(self, target, seed):
        self.target = target
        self.weather = Weather()
        self.carried = 0
        self._random = random.Random(seed)
        self._connections = set()
        self._loop = asyncio.new_event_loop()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def reset_all(self):
        self._loop.call_soon_threadsafe(self._reset_now)

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, sock=self._listener))
        try:
            self._loop.run_forever()
        finally:
            self._reset_now()
            server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0.05))
            self._loop.close()

    def _reset_now(self):
        for writer in list(self._connections):
            self._reset(writer)

    @staticmethod
    def _reset(writer):
        sock = writer.get_extra_info("socket")
        if sock is not None:
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            except OSError:
                pass  # it is closed already
        writer.transport.abort()

    async def _accept(self, reader, writer):
        if self.weather.refuses:
            return self._reset(writer)
        self._connections.add(writer)
        onward = None
        try:
            back, onward = await asyncio.open_connection("127.0.0.1", self.target)
            self._connections.add(onward)
            await asyncio.gather(self._carry(reader, onward), self._carry(back, writer))
        except OSError:
            self._reset(writer)  # the target refuses, or an end is gone
        finally:
            for end in (writer, onward):
                if end is not None:
                    self._connections.discard(end)
                    end.close()

    async def _carry(self, reader, writer):
        due = 0.0
        while True:
            piece = await reader.read(CHUNK)
            if not piece:
                break
            weather = self.weather
            now = self._loop.time()
            wait = weather.delay_s + weather.jitter_s * self._random.random()
            if weather.bytes_a_second:
                wait += len(piece) / weather.bytes_a_second
            due = max(due, now + wait)
            if due > now:
                await asyncio.sleep(due - now)
            while self.weather.is_stalled:
                await asyncio.sleep(0.02)
            writer.write(piece)
            self.carried += len(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
