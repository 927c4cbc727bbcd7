/** Names of persons, by what stands before them: a title, an introduction, or a common first name. A heuristic. */
import type { AddSpan } from "#domain/pii.ts"

const namePart = "\\p{Lu}[\\p{L}’'-]{1,30}"
const particle = "(?:van|von|der|den|de|del|della|di|da|dos|la|le|bin|al|zu|ter)"
const fullName = `${namePart}(?: ${particle}){0,2}(?: (?:${namePart}|\\p{Lu}\\.)){0,3}`

const titled = new RegExp(
  `(?<![\\p{L}\\p{N}])(?:Mr|Mrs|Ms|Miss|Mx|Dr|Prof|Professor|Herrn?|Frau|[Mm]onsieur|[Mm]adame|Mme|Mlle|[Ss]eñora?|Sra?|[Ss]ignora?|[Ss]ig|[Dd]ott(?:oressa|\\.ssa|or)?|[Ss]enhora?|Sir|Dame|[Mm]evrouw|[Mm]eneer|Pani?|Fru)\\.? (${fullName})`,
  "gu"
)

const introduced = new RegExp(
  `(?<![\\p{L}\\p{N}])(?:[Mm]y name is|[Nn]ame is|[Nn]amed|[Mm]ein Name ist|[Ii]ch heiße|[Jj]e m['’]appelle|[Mm]i nombre es|[Mm]e llamo|[Mm]i chiamo|[Mm]eu nome é|[Ii]k heet|[Mm]ijn naam is|[Jj]ag heter|[Nn]azywam się|[Мм]еня зовут|[Pp]atient|[Cc]ustomer name:?|[Ff]ull name:?|[Ss]igned by|[Ss]incerely,|[Rr]egards,)\\s{1,3}(${fullName})`,
  "gu"
)

/** People who speak of themselves: with a first and a last name only, because much else can stand there. */
const speaking = new RegExp(
  `(?<![\\p{L}\\p{N}])(?:I am|I['’]m|[Ii]ch bin|[Jj]e suis|[Yy]o soy|[Ss]oy|[Ss]ono|[Ee]u sou|[Ii]k ben)\\s(${namePart}(?: ${particle}){0,2} ${namePart})|(?<![\\p{L}\\p{N}])[Tt]his is (${namePart} ${namePart})(?=,? (?:calling|speaking|from|writing|here))`,
  "gu"
)

const firstNames = new Set(
  (
    "James Robert John Michael David William Richard Joseph Thomas Charles Christopher Daniel Matthew Anthony Mark Donald Steven " +
    "Andrew Paul Joshua Kenneth Kevin Brian George Timothy Ronald Jason Edward Jeffrey Ryan Jacob Gary Nicholas Eric Jonathan " +
    "Stephen Larry Justin Scott Brandon Benjamin Samuel Gregory Alexander Patrick Frank Raymond Jack Dennis Jerry Tyler Aaron " +
    "Jose Adam Nathan Henry Peter Zachary Kyle Walter Harold Carl Arthur Roger Keith Lawrence Albert Joe Oliver Liam Noah Ethan " +
    "Mary Patricia Jennifer Linda Elizabeth Barbara Susan Jessica Sarah Karen Lisa Nancy Betty Sandra Margaret Ashley Kimberly " +
    "Emily Donna Michelle Carol Amanda Melissa Deborah Stephanie Rebecca Sharon Laura Cynthia Dorothy Amy Kathleen Angela Shirley " +
    "Emma Brenda Pamela Nicole Anna Samantha Katherine Christine Helen Debra Rachel Carolyn Janet Maria Catherine Heather Diane " +
    "Olivia Julie Joyce Victoria Ruth Virginia Lauren Kelly Christina Joan Evelyn Judith Andrea Hannah Megan Cheryl Jacqueline " +
    "Martha Madison Teresa Gloria Sara Janice Ann Kathryn Abigail Sophia Frances Jean Alice Judy Isabella Julia Grace Denise " +
    "Hans Klaus Jürgen Wolfgang Heinz Günter Dieter Manfred Uwe Stefan Andreas Matthias Markus Sebastian Tobias Florian Lukas " +
    "Jonas Felix Maximilian Ursula Monika Petra Sabine Renate Helga Karin Brigitte Ingrid Gisela Claudia Susanne Katrin Anja " +
    "Pierre Jacques Philippe Alain Bernard Michel François Nicolas Julien Antoine Camille Chloé Léa Manon Sylvie Isabelle " +
    "Nathalie Céline Aurélie Juan Carlos Luis Miguel Javier Francisco Antonio Manuel Pedro Alejandro Fernando Diego Sergio " +
    "Pablo Lucía Carmen Ana Isabel Pilar Dolores Marta Elena Sofía Giuseppe Giovanni Marco Luca Francesco Alessandro Matteo " +
    "Lorenzo Giulia Francesca Chiara Paolo Roberto João Paulo Ricardo Rafael Mariana Fernanda Beatriz Mohammed Muhammad Ahmed " +
    "Ali Omar Hassan Fatima Aisha Priya Rahul Amit Anjali Sanjay Deepak Wei Ming Yuki Hiroshi Kenji Sakura Ivan Dmitri Sergei " +
    "Olga Natalia Svetlana Katarzyna Piotr Agnieszka Jan Anders Lars Erik Ingrid Björn Astrid"
  ).split(" ")
)

const capitalised = new RegExp(
  `(?<![\\p{L}\\p{N}’'-])(${namePart})(?: \\p{Lu}\\.)?(?: ${particle}){0,2} (${namePart})`,
  "gu"
)

/** Second words after a first name that make it a place, a firm, a day or a title of something. */
const notSurname =
  /^(?:Street|St|Road|Avenue|Ave|Lane|City|County|University|College|Hospital|School|Church|Airport|Park|River|Lake|Island|Bridge|Building|Center|Centre|Inc|Ltd|LLC|GmbH|Corp|Company|Foundation|Award|Prize|Day|Week|Act|Law|Theorem|Test|Said|Says|Is|Was|The|And|Or|In|On|At|Hotel|Museum|Stadium|Press|Bank|Group|Model|Framework|Services|Service|Systems|Period|Garden|Gardens|Bay|Area|Valley|Beach|Hill|Hills|Square|Station|Plaza|Tower|Towers|House|Hall|Place|Court|Drive|Festival|Cup|League|Division|Sur|Norte|Straße|Strasse|Platz|Allee)$/

/** Words before a first name that make it a place. */
const ofPlace = /(?:^|[^\p{L}])(?:San|Santa|Santo|São|Saint|Sankt|St\.?|Ste\.?|Fort|Port|Mount|Lake|Cape)\s$/u

/** PERSON. */
export const personEntities = (text: string, add: AddSpan): void => {
  for (const [pattern, confidence] of [
    [titled, 0.85],
    [introduced, 0.8],
    [speaking, 0.7]
  ] as const) {
    for (const match of text.matchAll(pattern)) {
      const name = match[1] ?? match[2]!
      const start = match.index + match[0].length - name.length
      add("PERSON", start, start + name.length, confidence)
    }
  }
  capitalised.lastIndex = 0
  for (let match = capitalised.exec(text); match !== null; match = capitalised.exec(text)) {
    if (
      firstNames.has(match[1]!) &&
      !notSurname.test(match[2]!) &&
      !ofPlace.test(text.slice(Math.max(0, match.index - 8), match.index))
    ) {
      add("PERSON", match.index, match.index + match[0].length, 0.7)
    } else {
      // The second word may itself be the first name: "Yesterday Anna Schmidt".
      capitalised.lastIndex = match.index + match[1]!.length
    }
  }
}
