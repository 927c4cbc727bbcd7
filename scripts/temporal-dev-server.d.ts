/** Temporal's command, where there is one already. */
export declare const findTemporal: () => string | undefined
