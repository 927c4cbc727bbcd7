export type TestJob =
  | { readonly kind: "echo"; readonly text: string }
  | { readonly kind: "endless" | "stuck" | "throw" | "exit" }

export function* handle(job: TestJob): Generator<void, string, void> {
  switch (job.kind) {
    case "echo":
      return job.text
    case "endless":
      for (;;) yield
    case "stuck":
      for (;;);
    case "throw":
      throw new Error("thrown on purpose")
    case "exit":
      process.exit(3)
  }
}
