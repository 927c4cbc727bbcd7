import { defineConfig } from "vitest/config"
import { TemporalLast } from "./test/support/TemporalLast.ts"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/globalSetup.ts"],
    sequence: { sequencer: TemporalLast },
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // One more than cores: many tests wait for clocks, processes and databases.
    maxWorkers: 3
  }
})
