/** What goes into a worker thread. */
export type ToThread = { readonly id: number; readonly job: unknown } | { readonly cancel: number }

/** What comes out of it. `problem` is for the log. */
export type FromThread =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly problem: string }
  | { readonly alive: true }
