// The imports of the module over navigator.gpu: src/backend/webgpu/library_browser.cpp declares them. Objects are numbers of a
// table, and so are promises; the module waits for a promise by suspending itself.

const features = ["shader-f16", "subgroups", "timestamp-query"]; // bit i of a set
const filters = ["validation", "out-of-memory", "internal"];

const errorStatus = (error) =>
  typeof GPUValidationError !== "undefined" && error instanceof GPUValidationError ? 1
  : typeof GPUOutOfMemoryError !== "undefined" && error instanceof GPUOutOfMemoryError ? 2
  : 3;

/**
 * @param {{memory: () => WebAssembly.Memory, gpu?: GPU}} host
 * @returns imports of the module "webgpu", without `wait`, which is `waitFor`.
 */
export function webgpuImports({ memory, gpu }) {
  const objects = [null]; // by number; 0 is none
  const free = [];
  const promises = new Map(); // number -> {promise, outcome}
  let lastPromise = 0;
  const messages = new Map(); // device -> [{kind, text}]
  const encoder = new TextEncoder();
  const decoder = new TextDecoder();

  const bytes = (at, count) => new Uint8Array(memory().buffer, at >>> 0, count >>> 0);
  const text = (at, count) => (count ? decoder.decode(bytes(at, count)) : "");
  // Writes at most `max` bytes of a text, whole characters, and returns how many.
  const write = (value, at, max) => encoder.encodeInto(value, bytes(at, max)).written;

  const add = (object) => {
    if (object == null) return 0;
    const number = free.pop() ?? objects.length;
    objects[number] = object;
    return number;
  };
  // `start` returns a promise of {status, object, text}.
  const promise = (start) => {
    const entry = { outcome: null, promise: null };
    const settle = (outcome) => {
      entry.outcome = { status: 0, object: 0, text: "", ...outcome };
    };
    entry.promise = Promise.resolve()
      .then(start)
      .then(settle, (error) => settle({ status: 3, text: String(error?.message ?? error) }));
    promises.set(++lastPromise, entry);
    return lastPromise;
  };
  // Objects that cannot be made, such as a mapped buffer without memory, are none; an error scope has the reason.
  const attempt = (make) => {
    try {
      return add(make());
    } catch (error) {
      messages.get(error?.device)?.push({ kind: 2, text: String(error) });
      return 0;
    }
  };

  return {
    waitFor: (number) => promises.get(number).promise,
    release: (number) => {
      if (!number) return;
      objects[number] = null;
      free.push(number);
    },
    outcome: (number, status, object, at, max) => {
      const { outcome } = promises.get(number);
      promises.delete(number);
      const view = new DataView(memory().buffer);
      view.setUint32(status, outcome.status, true);
      view.setUint32(object, outcome.object, true);
      return write(outcome.text, at, max);
    },

    requestAdapter: (fast) =>
      promise(async () => {
        const adapter = await gpu?.requestAdapter(fast ? { powerPreference: "high-performance" } : {});
        return { object: add(adapter) };
      }),
    adapterFeatures: (adapter) =>
      features.reduce((set, name, bit) => set | (objects[adapter].features.has(name) ? 1 << bit : 0), 0),
    adapterLimit: (adapter, at, count) => objects[adapter].limits[text(at, count)] ?? -1,
    adapterText: (adapter, which, at, max) => {
      const info = objects[adapter].info;
      const name = info.device || info.description || info.architecture || info.vendor || "adapter of the browser";
      return write([info.vendor, info.architecture, name, info.description][which] ?? "", at, max);
    },
    adapterNumber: (adapter, which) => {
      const { info } = objects[adapter];
      const software = info.isFallbackAdapter || /swiftshader|llvmpipe/i.test(`${info.architecture} ${info.description}`);
      return [software ? 1 : 0, info.subgroupMinSize ?? 0, info.subgroupMaxSize ?? 0][which] ?? 0;
    },
    requestDevice: (adapter, set) =>
      promise(async () => {
        const requiredLimits = {};
        for (const name in objects[adapter].limits) {
          const limit = objects[adapter].limits[name];
          if (typeof limit === "number") requiredLimits[name] = limit;
        }
        const requiredFeatures = features.filter((_, bit) => (set >> bit) & 1);
        const device = await objects[adapter].requestDevice({ label: "weft", requiredFeatures, requiredLimits });
        const queue = [];
        messages.set(device, queue);
        device.addEventListener("uncapturederror", (event) => {
          event.preventDefault();
          queue.push({ kind: 2, text: event.error.message });
        });
        device.lost.then(({ reason, message }) => {
          queue.push({ kind: 1, text: message || reason || "the browser gave no reason" });
        });
        return { object: add(device) };
      }),
    deviceQueue: (device) => add(objects[device].queue),
    deviceDestroy: (device) => objects[device].destroy(),
    deviceMessage: (device, at, max, count) => {
      const message = messages.get(objects[device])?.shift();
      if (!message) return 0;
      new DataView(memory().buffer).setUint32(count, write(message.text, at, max), true);
      return message.kind;
    },
    pushErrorScope: (device, filter) => objects[device].pushErrorScope(filters[filter]),
    popErrorScope: (device) => {
      // Asked for now, in the order of the scopes; a promise that starts later could meet other scopes.
      const popped = objects[device].popErrorScope();
      popped.catch(() => {});
      return promise(async () => {
        const error = await popped;
        return error ? { status: errorStatus(error), text: error.message } : {};
      });
    },

    createBuffer: (device, label, labelBytes, usage, size, mapped) =>
      attempt(() =>
        objects[device].createBuffer({ label: text(label, labelBytes), usage, size, mappedAtCreation: mapped !== 0 }),
      ),
    createShaderModule: (device, label, labelBytes, code, codeBytes) =>
      attempt(() =>
        objects[device].createShaderModule({ label: text(label, labelBytes), code: text(code, codeBytes) }),
      ),
    createBindGroupLayout: (device, readOnly, count) =>
      attempt(() =>
        objects[device].createBindGroupLayout({
          entries: Array.from(bytes(readOnly, count), (isReadOnly, binding) => ({
            binding,
            visibility: GPUShaderStage.COMPUTE,
            buffer: { type: isReadOnly ? "read-only-storage" : "storage" },
          })),
        }),
      ),
    createPipelineLayout: (device, group, immediateSize) =>
      attempt(() =>
        objects[device].createPipelineLayout({
          bindGroupLayouts: [objects[group]],
          ...(immediateSize ? { immediateSize } : {}),
        }),
      ),
    createComputePipeline: (device, label, labelBytes, layout, module) =>
      attempt(() =>
        objects[device].createComputePipeline({
          label: text(label, labelBytes),
          layout: objects[layout],
          compute: { module: objects[module], entryPoint: "main" },
        }),
      ),
    createBindGroup: (device, layout, buffers, offsets, sizes, count) =>
      attempt(() => {
        const view = new DataView(memory().buffer);
        const entries = Array.from({ length: count }, (_, binding) => ({
          binding,
          resource: {
            buffer: objects[view.getUint32(buffers + 4 * binding, true)],
            offset: view.getFloat64(offsets + 8 * binding, true),
            size: view.getFloat64(sizes + 8 * binding, true),
          },
        }));
        return objects[device].createBindGroup({ layout: objects[layout], entries });
      }),
    createQuerySet: (device, count) => attempt(() => objects[device].createQuerySet({ type: "timestamp", count })),
    createCommandEncoder: (device) => add(objects[device].createCommandEncoder()),

    bufferDestroy: (buffer) => objects[buffer].destroy(),
    bufferMap: (buffer, mode, offset, size) => {
      const mapped = objects[buffer].mapAsync(mode, offset, size);
      mapped.catch(() => {});
      return promise(async () => {
        await mapped;
        return {};
      });
    },
    bufferRead: (buffer, offset, size, at) => {
      try {
        bytes(at, size).set(new Uint8Array(objects[buffer].getMappedRange(offset, size >>> 0)));
        return 1;
      } catch {
        return 0;
      }
    },
    bufferWrite: (buffer, offset, size, at) =>
      new Uint8Array(objects[buffer].getMappedRange(offset, size >>> 0)).set(bytes(at, size)),
    bufferUnmap: (buffer) => objects[buffer].unmap(),

    beginComputePass: (encoder, label, labelBytes, querySet, begin, end) =>
      add(
        objects[encoder].beginComputePass({
          label: text(label, labelBytes),
          ...(querySet
            ? {
                timestampWrites: {
                  querySet: objects[querySet],
                  beginningOfPassWriteIndex: begin,
                  endOfPassWriteIndex: end,
                },
              }
            : {}),
        }),
      ),
    copyBuffer: (encoder, from, fromOffset, to, toOffset, size) =>
      objects[encoder].copyBufferToBuffer(objects[from], fromOffset, objects[to], toOffset, size),
    clearBuffer: (encoder, buffer, offset, size) => objects[encoder].clearBuffer(objects[buffer], offset, size),
    resolveQuerySet: (encoder, queries, first, count, to, offset) =>
      objects[encoder].resolveQuerySet(objects[queries], first, count, objects[to], offset),
    finish: (encoder) => add(objects[encoder].finish()),
    setPipeline: (pass, pipeline) => objects[pass].setPipeline(objects[pipeline]),
    setBindGroup: (pass, group) => objects[pass].setBindGroup(0, objects[group]),
    setImmediates: (pass, at, count) => objects[pass].setImmediates(0, bytes(at, count).slice()),
    dispatch: (pass, x, y, z) => objects[pass].dispatchWorkgroups(x >>> 0, y >>> 0, z >>> 0),
    endPass: (pass) => objects[pass].end(),
    submit: (queue, commands) => objects[queue].submit([objects[commands]]),
    writeBuffer: (queue, buffer, offset, at, size) =>
      objects[queue].writeBuffer(objects[buffer], offset, memory().buffer, at >>> 0, size >>> 0),
    workDone: (queue) => {
      const done = objects[queue].onSubmittedWorkDone();
      done.catch(() => {});
      return promise(async () => {
        await done;
        return {};
      });
    },
  };
}
