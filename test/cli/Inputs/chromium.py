"""Headless Chromium through its debugging pipe: pages are opened, looked at, and keys are pressed in them.

    with Chromium() as browser:
        browser.call("Page.navigate", url="file:///tmp/page.html")
        browser.wait("Page.loadEventFired")
        browser.value("document.title")
"""
import json
import os
import subprocess
import tempfile

KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "ArrowRight": (39, ""), "ArrowDown": (40, "")}


class Chromium:
    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # the browser may still write there
        commands, self.to = os.pipe()
        self.replies, answers = os.pipe()
        program = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   f"--user-data-dir={self.scratch.name}/profile", "--remote-debugging-pipe", "about:blank"]
        # The browser reads file 3 and writes file 4.
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", *program],
                                        pass_fds=(commands, answers), stderr=subprocess.DEVNULL)
        os.close(commands), os.close(answers)
        self.stream = os.fdopen(self.replies, "rb")
        self.number, self.events, self.session, self.rest = 0, [], None, b""
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        return self

    def __exit__(self, *failure):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        self.stream.close()
        self.scratch.cleanup()

    def read(self):
        while b"\0" not in self.rest:
            more = os.read(self.replies, 1 << 16)
            assert more, "the browser has ended"
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            message = self.read()
            if message.get("id") == self.number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self.events.append(message)

    def wait(self, event):
        while True:
            for message in self.events:
                if message.get("method") == event:
                    self.events.remove(message)
                    return
            self.events.append(self.read())

    def value(self, expression):
        """Of JavaScript; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, address, width, height, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.call("Page.navigate", url=address)
        self.wait("Page.loadEventFired")

    def complaints(self):
        """Exceptions, and all that was written to the console, since the page was opened."""
        return [message["params"] for message in self.events
                if message.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")]

    def press(self, key):
        code, text = KEYS[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code={" ": "Space"}.get(key, key), text=text,
                      windowsVirtualKeyCode=code)
