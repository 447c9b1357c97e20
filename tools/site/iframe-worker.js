// Search in a site that was opened from a folder. A browser starts no worker from a file, so a
// hidden frame runs the worker's script.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      const script = inner.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.inner = inner;
        this.waiting.forEach((data) => this.postMessage(data));
      };
      // What the script says to the page, and its way to hear of it, are a worker's.
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.document.body.appendChild(script);
    }
    postMessage(data) {
      if (this.inner) this.inner.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
