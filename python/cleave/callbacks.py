"""What is called after each step of a training: callback(trainer, metrics). `fit` ends where one returns True."""
import http.server
import math
import threading

from cleave._tool import CleaveError, launched_rank


class EarlyStopping:
    """Ends the training when a figure has not become better for `patience` steps that have it.

        cleave.fit(model, loader, recipe, callbacks=[cleave.EarlyStopping(patience=50, min_delta=1e-3)])

    monitor: a field of Metrics, or a function of (trainer, metrics) that gives the figure, or None in a step without one. It is
    better where it is below the best by more than min_delta; with mode="max" above. A figure that is not finite is not better.
    """

    def __init__(self, patience=3, min_delta=0.0, monitor="loss", mode="min"):
        if patience < 1 or min_delta < 0 or mode not in ("min", "max"):
            raise CleaveError("EarlyStopping: patience is at least 1, min_delta at least 0, mode 'min' or 'max'", 2)
        self.patience, self.min_delta, self.monitor, self.mode = patience, min_delta, monitor, mode
        self.best, self.best_step, self.waited = None, None, 0

    def __call__(self, trainer, metrics):
        if not callable(self.monitor) and self.monitor not in metrics._fields:
            raise CleaveError(f"EarlyStopping: metrics have no {self.monitor!r}; they have {', '.join(metrics._fields)}", 2)
        value = self.monitor(trainer, metrics) if callable(self.monitor) else getattr(metrics, self.monitor)
        if value is None:
            return False
        gain = 0.0 if self.best is None else (value - self.best) * (1 if self.mode == "max" else -1)
        if math.isfinite(value) and (self.best is None or gain > self.min_delta):
            self.best, self.best_step, self.waited = value, metrics.step, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


class PrometheusServer:
    """Serves the latest step's metrics for Prometheus at http://127.0.0.1:PORT/metrics, from rank 0.

        cleave.fit(model, loader, recipe, callbacks=[cleave.PrometheusServer(9100)])

    It serves until close() or the end of the process, which it does not hold up. Error: the port is in use.
    """

    def __init__(self, port):
        self._text, self.port = "", port
        self._server = None
        if launched_rank():
            return
        of = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                found = self.path.partition("?")[0] == "/metrics"
                body = of._text.encode() if found else b"the metrics are at /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, allow_reuse_address = True, True

        Handler.timeout = 10  # seconds for a client to send its request
        try:
            self._server = Server(("127.0.0.1", port), Handler)
        except OSError as error:
            raise CleaveError(f"PrometheusServer: port {port} of 127.0.0.1: {error.strerror}", 1) from None
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __call__(self, trainer, metrics):
        if self._server:
            self._text = trainer.prometheus()
        return False

    def close(self):
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
