/** What goes into an expression process and comes out of it. Values travel as JSON text. */
export type ExpressionJob =
  | { readonly kind: "render"; readonly template: string; readonly scope: string; readonly now: number }
  | {
      readonly kind: "each"
      readonly template: string
      readonly scope: string
      readonly items: string
      readonly now: number
    }
  | { readonly kind: "test"; readonly condition: string; readonly scope: string; readonly now: number }
  | { readonly kind: "violation"; readonly schema: string; readonly value: string }

export type ExpressionAnswer = { readonly value: string } | { readonly problem: string }

/** Bounds of one expression: milliseconds, depth of calls, length of any sequence; and of what a job answers. */
export const expressionBounds = { timeout: 1000, stack: 200, sequence: 100_000, answer: 16 * 1024 * 1024 } as const
