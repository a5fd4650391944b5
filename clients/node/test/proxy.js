// Passes connections on to a server and counts round trips: what the client sends behind what the server said.
'use strict';

const net = require('node:net');

class Proxy {
  trips = 0;
  #sockets = new Set();

  /** Starts it; `url` is the server's. Resolves to the URL of the proxy. */
  async start(url) {
    this.server = net.createServer((client) => this.#pass(client, net.connect(Number(url.port), url.hostname)));
    await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    return Object.assign(new URL(url), { port: String(this.server.address().port) });
  }

  async count(call) {
    this.trips = 0;
    await call();
    return this.trips;
  }

  stop() {
    this.server.close();
    this.#sockets.forEach((socket) => socket.destroy());
  }

  #pass(client, upstream) {
    let said = true;
    client.on('data', (data) => {
      if (said) this.trips++;
      said = false;
      upstream.write(data);
    });
    upstream.on('data', (data) => {
      said = true;
      client.write(data);
    });
    for (const [one, other] of [[client, upstream], [upstream, client]]) {
      this.#sockets.add(one);
      one.setNoDelay(true).on('error', () => {}).on('close', () => other.destroy());
    }
  }
}

module.exports = { Proxy };
