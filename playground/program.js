/* Runs the program build/sim, which was compiled to WebAssembly, in a worker of the browser.
 *
 * The program is a command of WASI (WebAssembly System Interface, preview 1): it asks its
 * environment for arguments, files and output through the functions of class Environment below.
 * Here files are arrays of bytes in memory, and there is one directory, "/". A worker is a thread
 * of its own, so a long simulation does not keep the page from answering.
 *
 * The page sends { wasm } once, with the bytes of the program, and then { args, files } for each
 * run. The worker answers { status, out, err, files }: the exit status, what the program printed,
 * and the files that it wrote. If the program ended by a fault, `trap` says so. */
"use strict";

const ERRNO = { SUCCESS: 0, BADF: 8, NOENT: 44 }; // WASI preview 1, type errno
const FILETYPE = { DIRECTORY: 3, REGULAR: 4, CHARACTER: 2 };
const OPEN_CREATE = 1; // oflags: the file is made if it is not there
const ALL_RIGHTS = 0xffffffffffffffffn;
const ROOT_FD = 3; // the first descriptor after stdin, stdout and stderr is the directory

class Exit extends Error {
    constructor(status) {
        super(`exit ${status}`);
        this.status = status;
    }
}

/* Bytes that grow at the end. `at` is where the next read begins. */
class File {
    constructor(bytes = new Uint8Array(0)) {
        this.bytes = bytes;
        this.length = bytes.length;
        this.at = 0;
    }

    append(more) {
        if (this.length + more.length > this.bytes.length) {
            const larger = new Uint8Array(2 * (this.length + more.length));

            larger.set(this.contents());
            this.bytes = larger;
        }
        this.bytes.set(more, this.length);
        this.length += more.length;
    }

    read(size) {
        const part = this.bytes.subarray(this.at, Math.min(this.at + size, this.length));

        this.at += part.length;
        return part;
    }

    contents() {
        return this.bytes.subarray(0, this.length);
    }
}

/* What the program can see of the world. Pointers are offsets into the program's memory. */
class Environment {
    constructor(args, files) {
        this.args = args.map((text) => new TextEncoder().encode(text + "\0"));
        this.files = new Map();
        for (const name of Object.keys(files))
            this.files.set(name, new File(new TextEncoder().encode(files[name])));
        this.open = [new File(), new File(), new File(), null]; // by descriptor
        this.memory = null; // set when the program has been instantiated
    }

    view() {
        return new DataView(this.memory.buffer);
    }

    text(pointer, length) {
        return new TextDecoder().decode(new Uint8Array(this.memory.buffer, pointer, length));
    }

    /* Calls fn with each buffer of an array of {pointer, length}, until fn returns false. */
    eachBuffer(vectors, count, fn) {
        for (let i = 0; i < count; i++) {
            const pointer = this.view().getUint32(vectors + 8 * i, true);
            const length = this.view().getUint32(vectors + 8 * i + 4, true);

            if (!fn(new Uint8Array(this.memory.buffer, pointer, length))) return;
        }
    }

    args_sizes_get(count, size) {
        this.view().setUint32(count, this.args.length, true);
        this.view().setUint32(size, this.args.reduce((sum, a) => sum + a.length, 0), true);
        return ERRNO.SUCCESS;
    }

    args_get(pointers, buffer) {
        for (const arg of this.args) {
            this.view().setUint32(pointers, buffer, true);
            new Uint8Array(this.memory.buffer).set(arg, buffer);
            pointers += 4;
            buffer += arg.length;
        }
        return ERRNO.SUCCESS;
    }

    fd_prestat_get(fd, result) {
        if (fd !== ROOT_FD) return ERRNO.BADF;
        this.view().setUint32(result, 0, true); // a directory
        this.view().setUint32(result + 4, 1, true); // the length of its name "/"
        return ERRNO.SUCCESS;
    }

    fd_prestat_dir_name(fd, name) {
        this.view().setUint8(name, "/".charCodeAt(0));
        return ERRNO.SUCCESS;
    }

    fd_fdstat_get(fd, result) {
        let type = FILETYPE.REGULAR;

        if (fd >= this.open.length) return ERRNO.BADF;
        if (fd === ROOT_FD) type = FILETYPE.DIRECTORY;
        if (fd < ROOT_FD) type = FILETYPE.CHARACTER;
        this.view().setUint8(result, type);
        this.view().setUint16(result + 2, 0, true);
        this.view().setBigUint64(result + 8, ALL_RIGHTS, true);
        this.view().setBigUint64(result + 16, ALL_RIGHTS, true);
        return ERRNO.SUCCESS;
    }

    fd_fdstat_set_flags() {
        return ERRNO.SUCCESS;
    }

    path_open(fd, lookup, path, length, oflags, rights, inherited, flags, result) {
        const name = this.text(path, length);

        if (oflags & OPEN_CREATE) this.files.set(name, new File());
        if (!this.files.has(name)) return ERRNO.NOENT;
        this.view().setUint32(result, this.open.length, true);
        this.open.push(this.files.get(name));
        return ERRNO.SUCCESS;
    }

    fd_read(fd, vectors, count, result) {
        let total = 0;

        if (!this.open[fd]) return ERRNO.BADF;
        this.eachBuffer(vectors, count, (buffer) => {
            const part = this.open[fd].read(buffer.length);

            buffer.set(part);
            total += part.length;
            return part.length === buffer.length;
        });
        this.view().setUint32(result, total, true);
        return ERRNO.SUCCESS;
    }

    fd_write(fd, vectors, count, result) {
        let total = 0;

        if (!this.open[fd]) return ERRNO.BADF;
        this.eachBuffer(vectors, count, (buffer) => {
            this.open[fd].append(buffer);
            total += buffer.length;
            return true;
        });
        this.view().setUint32(result, total, true);
        return ERRNO.SUCCESS;
    }

    /* The program reads and writes its files from the beginning to the end. */
    fd_seek() {
        return ERRNO.BADF;
    }

    fd_close() {
        return ERRNO.SUCCESS;
    }

    proc_exit(status) {
        throw new Exit(status);
    }
}

/* The functions of the environment, as WebAssembly.instantiate() wants them. */
function importsOf(environment) {
    const functions = {};

    for (const name of Object.getOwnPropertyNames(Environment.prototype))
        if (name !== "constructor") functions[name] = environment[name].bind(environment);
    return { wasi_snapshot_preview1: functions };
}

/* Runs the program once. Each run is a new instance, so nothing is left of the run before. */
async function run(program, args, files) {
    const environment = new Environment(["sim", ...args], files);
    const instance = await WebAssembly.instantiate(program, importsOf(environment));
    const decode = (file) => new TextDecoder().decode(file.contents());
    let status = 0, trap = null;

    environment.memory = instance.exports.memory;
    try {
        instance.exports._start();
    } catch (error) {
        if (error instanceof Exit) {
            status = error.status;
        } else {
            status = -1;
            trap = `The simulation stopped: ${error.message}.`;
        }
    }
    const written = {};

    for (const [name, file] of environment.files)
        if (!(name in files)) written[name] = file.contents().slice();
    return { status, trap, out: decode(environment.open[1]), err: decode(environment.open[2]),
             files: written };
}

let program = null; // a promise of the compiled module

onmessage = async (event) => {
    const { wasm, args, files } = event.data;

    try {
        if (wasm) program = WebAssembly.compile(wasm);
        if (args) postMessage(await run(await program, args, files));
    } catch (error) {
        postMessage({ status: -1, trap: `The simulation did not start: ${error.message}.`,
                      out: "", err: "", files: {} });
    }
};
