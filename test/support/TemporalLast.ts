import { BaseSequencer, type TestSpecification } from "vitest/node"
import { findTemporal } from "../../scripts/temporal-dev-server.js"

/** The tests of Temporal wait for its command; where that is still being built, the others go first. */
export class TemporalLast extends BaseSequencer {
  override async sort(files: Array<TestSpecification>): Promise<Array<TestSpecification>> {
    const sorted = await super.sort(files)
    if (findTemporal() !== undefined) return sorted
    const waits = ({ moduleId }: TestSpecification) => /temporal[^/]*\.test\.ts$/i.test(moduleId)
    return [...sorted.filter((file) => !waits(file)), ...sorted.filter(waits)]
  }
}
